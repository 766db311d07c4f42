"""TCP's own clocks and facts: why a transport does not fill its link, and where packets were lost."""

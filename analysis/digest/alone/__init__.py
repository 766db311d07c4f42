"""Hosts that were each digested alone: the report of their job, made in rounds in which all learn what others know."""

"""What is waited at least and at most where ends are not seen."""

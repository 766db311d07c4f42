"""What concludes: pure functions from tables to tables."""

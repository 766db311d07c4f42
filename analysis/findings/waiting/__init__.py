"""What ranks wait for, and who is behind it."""

"""What the report says, a file for each part of it."""

"""What may be recorded with which rights, where: tried, and held to what is said of it."""

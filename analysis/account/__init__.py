"""Where the link's idle time went."""

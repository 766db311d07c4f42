"""Who holds the job up, and what such a rank does meanwhile."""

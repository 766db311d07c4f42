"""What this machine, this user and this job allow, tried rather than looked up."""

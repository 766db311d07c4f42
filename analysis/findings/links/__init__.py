"""Links and the devices below them: use, limits, changes, drops, and better ones that are idle."""

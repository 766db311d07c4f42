"""What draws: views compute nothing, they show what the analysis returned."""

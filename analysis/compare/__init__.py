"""What changed between two runs of a job."""

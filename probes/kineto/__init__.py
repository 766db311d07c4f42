"""Asking the job itself for a profile: torch's own profiler answers, where the job was started so that it may."""

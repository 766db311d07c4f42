"""The job as something to be simulated: what its ranks execute, and which of it waits for which."""

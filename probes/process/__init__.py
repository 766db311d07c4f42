"""What the kernel says that each process of the job did with its time."""

"""What the threads that train are blocked in, as the kernel's scheduler sees it."""

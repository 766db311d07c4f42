"""GPU activity through NVML."""

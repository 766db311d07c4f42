"""What samples: BPF programs and their loader, link counters, symbols, processes."""

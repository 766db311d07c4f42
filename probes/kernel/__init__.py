"""The way into the kernel: BPF objects and libbpf, rtnetlink, network namespaces."""

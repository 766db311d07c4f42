"""NCCL's transport: what it hands to its network, at the functions of its net plugin interface."""

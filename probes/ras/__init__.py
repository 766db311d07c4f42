"""NCCL's RAS: what NCCL itself says of its communicators, their ranks, and which of these are missing."""

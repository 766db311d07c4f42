"""Collectives: sizes, bandwidths, communicators, and what NCCL and Horovod tell."""

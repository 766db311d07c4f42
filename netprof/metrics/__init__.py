"""Metrics for machines that watch: totals that only grow, where Prometheus finds them."""

"""RDMA ports: what they move, who of the job uses them, and what they report of congestion and loss."""

"""What is meant for Kubernetes (examples/deploy, the docs' lines), held to the schemas of its API without a cluster."""

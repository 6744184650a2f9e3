"""What is particular to a container runtime on the sidecar's side."""

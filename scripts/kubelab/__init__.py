"""A real Kubernetes control plane on one machine, for tests and demonstrations. Standard library only."""

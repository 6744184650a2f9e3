"""A real Slurm cluster on one machine, for tests and demonstrations. Standard library only."""

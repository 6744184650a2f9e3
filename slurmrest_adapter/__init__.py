"""Kubernetes pods become Slurm jobs through slurmrestd alone."""

__version__ = "0.1.0"

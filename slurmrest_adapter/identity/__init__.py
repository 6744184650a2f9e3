"""Who on the Slurm side runs a pod."""

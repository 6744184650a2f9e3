"""What the project talks about: pods, jobs, their states and ends. Pure, standard library only."""

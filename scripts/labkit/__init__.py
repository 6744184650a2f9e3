"""What the labs have in common: places, locks, processes, apt. Standard library only."""

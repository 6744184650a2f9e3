"""Following a pod: a pure machine that decides, and one impure driver beside it that acts."""

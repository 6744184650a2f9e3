"""The exit codes that are never a pod's own."""

OURS = 125
INTERRUPTED = 130

"""The program that runs a pod's containers on a compute node, inside the Slurm job.

The problem: a batch script that starts containers by shell lines leaks the node's environment,
mangles arguments, loses exit codes, and leaves processes behind; and Slurm's own cancel sends TERM
to *every* process of a job, the FUSE server of a container's root file system included.

The trick: the batch process is this program itself. It makes namespaces of its own, whose first
process ends with it and takes everything along; mounts the images there by a FUSE server that does
not hear TERM; and gives every container an explicit argv, environment and /dev. What it knows it
writes to ``status.json`` in the pod's directory, replaced atomically, early and often.

What it is not: a part of the sidecar. It runs on nodes that have an old Python and nothing else, so
it keeps to the standard library and to what Python 3.6 has, and imports nothing of the rest of the
project. The same sources are packed into the constant job script (`runtimes/script.py`).
"""

VERSION = "0.1.0"

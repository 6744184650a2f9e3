"""What the node's own slurm.conf says of how Slurm ends a job."""

import os
from typing import Mapping

# Where packages and "configless" nodes have it; Slurm names it in the job's environment, too.
_PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")


def kill_wait(environ: Mapping[str, str]) -> int:
    """Whole seconds between Slurm's TERM to a job and its KILL (KillWait); 30 where nothing tells."""
    found = 30
    for path in (environ.get("SLURM_CONF", ""), *_PLACES):
        if os.path.exists(path):
            with open(path, errors="replace") as stream:
                for line in stream:
                    name, _, value = line.partition("#")[0].partition("=")
                    if name.strip().lower() == "killwait" and value.strip().isdigit():
                        found = int(value)
            break
    return found

"""Which GPUs Slurm allotted to the job, and what of them a container sees.

Each container's /dev has the files of its own GPUs and what all of them need beside. Tried with device
files that nothing stands behind, not with a real GPU.
"""

import os
from typing import Dict, List, Mapping, NamedTuple, Sequence

# Needed beside /dev/nvidia<N> by everything that speaks CUDA.
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class Allotment(NamedTuple):
    """The job's GPUs.

    Attributes:
        indices: Slurm's indices on this node, in Slurm's order.
        files: each one's file below /dev, in the same order; empty where no file can be told from another.
        common: what every container with a GPU has beside; without `files` all that there is of GPUs.
        visible: what Slurm set for the job, variable by variable.
    """

    indices: List[str]
    files: List[str]
    common: List[str]
    visible: Dict[str, List[str]]


def allotted(environ: Mapping[str, str], dev: str = "/dev") -> Allotment:
    """Read the job's environment and look for the device files.

    Slurm's index of an NVIDIA GPU is its minor number where gres.conf lists the files in order, so
    the file is ``nvidia<index>``. Where one is missing (AMD), or Slurm counts parts of GPUs (MIG), no
    file can be told from another by its name: then all are shown and Slurm's own values stand.
    """
    indices = expand(environ.get("SLURM_JOB_GPUS") or environ.get("SLURM_STEP_GPUS") or "")
    visible = {name: environ[name].split(",") for name in VARIABLES if environ.get(name)}
    files = [os.path.join(dev, "nvidia" + index) for index in indices]
    parts = any(value[:3] == "MIG" for values in visible.values() for value in values)
    common = list(CONTROL_NODES)
    if parts or not all(os.path.exists(path) for path in files):
        cards = [name for name in os.listdir(dev) if name.startswith("nvidia") and name[-1:].isdigit()]
        files, common = [], ["kfd", "dri", "nvidia-caps", *CONTROL_NODES, *sorted(cards)]
    paths = [os.path.join(dev, name) for name in common] if indices else []
    return Allotment(indices, files, [path for path in paths if os.path.exists(path)], visible)


def devices(allotment: Allotment, positions: Sequence[int]) -> List[str]:
    """The files below /dev for a container with the GPUs at these positions; none if it has none."""
    own = [allotment.files[position] for position in positions] if allotment.files else []
    return own + allotment.common if positions else []


def expand(text: str) -> List[str]:
    """Slurm's list of indices, ``0,2-4``, as a list of strings."""
    found: List[str] = []
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            found.extend(str(index) for index in range(int(first), int(last) + 1))
        elif part:
            found.append(part)
    return found


def container_indices(allotment: Allotment, positions: List[int]) -> List[str]:
    """Slurm's indices of a container's GPUs; raises IndexError if Slurm allotted fewer."""
    return [allotment.indices[position] for position in positions]


def environment(allotment: Allotment, positions: List[int]) -> Dict[str, str]:
    """The variables that tell a container its GPUs; all are empty if it has none.

    Drivers count the GPUs whose files they see, from 0 in the order of their numbers. Where a container
    sees all the node's, the values are what Slurm gave the job, cut to the container's part.
    """
    if not positions:
        return dict.fromkeys(VARIABLES, "")
    mine = container_indices(allotment, positions)
    if allotment.files:
        order = sorted(mine, key=lambda index: (len(index), index))
        return {name: ",".join(str(order.index(index)) for index in mine) for name in VARIABLES}
    values = {}
    for name in VARIABLES:
        given = allotment.visible.get(name) or []
        if len(given) == len(allotment.indices):
            values[name] = ",".join(given[position] for position in positions)
        else:
            values[name] = ",".join(mine)
    return values

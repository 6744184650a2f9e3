"""Which GPUs Slurm allotted to the job, and what of them a container sees."""

import os
from typing import Dict, List, Mapping, NamedTuple

# Needed beside /dev/nvidia<N> by everything that speaks CUDA.
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class Allotment(NamedTuple):
    """The job's GPUs.

    Attributes:
        indices: Slurm's indices on this node, in Slurm's order.
        devices: the files below /dev to show in the pod.
        renumbered: the pod's /dev has exactly these devices, so drivers count them from 0.
        visible: what Slurm set for the job, variable by variable.
    """

    indices: List[str]
    devices: List[str]
    renumbered: bool
    visible: Dict[str, List[str]]


def allotted(environ: Mapping[str, str], dev: str = "/dev") -> Allotment:
    """Read the job's environment and look for the device files.

    Slurm's index of an NVIDIA GPU is its minor number where gres.conf lists the files in order, so
    the file is ``nvidia<index>``. Where one is missing (AMD, MIG) no file can be told from another
    by its name: then ``kfd`` and ``dri`` are shown as a whole and Slurm's own values stand.
    """
    indices = expand(environ.get("SLURM_JOB_GPUS") or environ.get("SLURM_STEP_GPUS") or "")
    visible = {name: environ[name].split(",") for name in VARIABLES if environ.get(name)}
    files = [os.path.join(dev, "nvidia" + index) for index in indices]
    if indices and all(os.path.exists(path) for path in files):
        control = [os.path.join(dev, name) for name in CONTROL_NODES]
        return Allotment(indices, files + [path for path in control if os.path.exists(path)], True, visible)
    if not indices:
        return Allotment([], [], False, visible)
    others = [os.path.join(dev, name) for name in ("kfd", "dri", *CONTROL_NODES)]
    names = [name for name in os.listdir(dev) if name[: len("nvidia")] == "nvidia" and name[-1:].isdigit()]
    others += [os.path.join(dev, name) for name in sorted(names)]
    return Allotment(indices, [path for path in others if os.path.exists(path)], False, visible)


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


def environment(allotment: Allotment, positions: List[int], sandboxed: bool) -> Dict[str, str]:
    """The variables that tell a container its GPUs; all are empty if it has none.

    With a /dev of the pod's own the values count from 0 over the job's devices; without, they are
    what Slurm gave the job, cut to the container's part.
    """
    if not positions:
        return dict.fromkeys(VARIABLES, "")
    mine = container_indices(allotment, positions)
    if sandboxed and allotment.renumbered:
        order = sorted(allotment.indices, key=lambda index: (len(index), index))
        return {name: ",".join(str(order.index(index)) for index in mine) for name in VARIABLES}
    values = {}
    for name in VARIABLES:
        given = allotment.visible.get(name) or []
        if len(given) == len(allotment.indices):
            values[name] = ",".join(given[position] for position in positions)
        else:
            values[name] = ",".join(mine)
    return values

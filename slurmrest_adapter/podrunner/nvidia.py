"""The node's NVIDIA driver in a container: its libraries and programs, as Apptainer's list names them.

They must be the node's own, since they fit its kernel's module alone. Not tried with a real GPU.
"""

import os
from typing import Dict, List, Tuple

from . import process
from .volumes import Bound

CONTROL = "/dev/nvidiactl"
_LISTS = ("/etc/apptainer/nvliblist.conf", "/usr/local/etc/apptainer/nvliblist.conf")
# Where Apptainer has them too, so that images made for it find them.
_LIBRARIES = "/.singularity.d/libs"
_PROGRAMS = "/usr/bin"


def bring(env: Dict[str, str], devices: List[str]) -> List[Bound]:
    """The mounts for a container with these `devices`; adds the libraries' place to its `env`."""
    mounts = found(*process.apart(_known)) if CONTROL in devices else []
    if any(each.target.startswith(_LIBRARIES) for each in mounts):
        before = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = before + ":" + _LIBRARIES if before else _LIBRARIES
    return mounts


def _known() -> Tuple[List[str], str]:
    """What Apptainer's list names, and the libraries that the node's loader knows."""
    import subprocess  # slow to import, and seldom needed

    names: List[str] = []
    for path in _LISTS:
        try:
            with open(path) as stream:
                names += [line.strip() for line in stream if line.strip() and not line.startswith("#")]
        except OSError:
            continue
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            return names, subprocess.check_output([program, "-p"], stderr=subprocess.DEVNULL).decode()
        except (OSError, subprocess.CalledProcessError):
            continue
    return names, ""


def found(names: List[str], loader: str) -> List[Bound]:
    """The files on this node of the `names`; `loader` is what ``ldconfig -p`` prints."""
    mounts: Dict[str, Bound] = {}
    for line in loader.splitlines():
        library, arrow, path = line.strip().partition(" => ")
        name = library.split(" ")[0]
        if arrow and "(libc6,x86-64" not in library and "(libc6,AArch64" not in library:
            continue  # of the node's second, smaller architecture
        if arrow and any(".so" in each and name.startswith(each) for each in names):
            mounts.setdefault(name, Bound(os.path.realpath(path), os.path.join(_LIBRARIES, name), True))
    for name in names:
        path = os.path.join(_PROGRAMS, name)
        if ".so" not in name and "/" not in name and os.path.isfile(path):
            mounts[name] = Bound(os.path.realpath(path), path, True)
    return list(mounts.values())

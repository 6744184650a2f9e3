"""The call of Apptainer for one container.

The caller's environment is minimal and the container's comes as APPTAINERENV_*: exact where
``--env`` is parsed as CSV and seen in the process list. `--no-eval`, or values run as shell code.
"""

import os
from typing import Dict, List, NamedTuple, Tuple

from . import volumes
from .container import Start


class Place(NamedTuple):
    """What surrounds the container: its root, and what is not in it."""

    root: str
    empty: str  # an empty directory to be the working directory that the image lacks
    hostname: str
    devices: List[str]  # of GPUs, by their paths on the node
    oci: bool  # the image has an OCI configuration, whose Env is in `Start.env` already
    mounts: List[volumes.Bound]


# What `apptainer pull` makes of an image's Env: shell text whose quoting breaks on quotes and
# backticks, and then says so on the container's standard error.
_IMAGE_ENV = "/.singularity.d/env/10-docker2singularity.sh"


def call(start: Start, place: Place) -> Tuple[List[str], Dict[str, str]]:
    """argv and environment of the `apptainer` process."""
    argv = ["apptainer", "-s", "exec", "--containall", "--no-eval", "--no-umask"]
    # Without --no-home, --home would mount the node's own directory of that name.
    argv += ["--no-home", "--home", start.home, "--cwd", start.cwd]
    if place.hostname:
        argv += ["--hostname", place.hostname]
    if start.make_cwd:
        argv += ["-B", bind(place.empty, start.cwd)]
    for bound in place.mounts:
        argv += ["--mount", mount(bound)]
    for path in place.devices:
        # --nv brings all that the node has. Below /dev, and with --containall, such a mount is one from which
        # a device can be opened (seen with 1.4.5).
        argv += ["-B", bind(path, path)]
    if place.oci and os.path.isfile(place.root + _IMAGE_ENV):
        argv += ["-B", bind("/dev/null", _IMAGE_ENV) + ":ro"]
    argv += [place.root, *start.argv]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ}
    for name, value in start.env.items():
        env["APPTAINERENV_" + name] = value
    return argv, env


def mount(bound: volumes.Bound) -> str:
    """Apptainer's mount option, which is one line of CSV."""
    fields = ["type=bind", "source=" + bound.source, "destination=" + bound.target]
    fields += ["ro"] if bound.read_only else []
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def bind(source: str, target: str) -> str:
    """Apptainer's bind option; it splits at commas and colons that are not escaped."""
    return ":".join(_escaped(path) for path in (source, target))


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")

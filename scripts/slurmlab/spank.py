"""Our SPANK plugin in a lab: built on this machine against the lab's own headers, installed, configured."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..labkit.debian import Apt, unpack
from ..labkit.places import cache_dir, locked, remove_tree
from ..labkit.report import LabError, say
from . import releases
from .layout import Lab
from .roots import slurm_version

SOURCES = Path(__file__).resolve().parents[2] / "slurmrest_adapter" / "spank"
TOOLS = ("gcc", "make", "libc6-dev")
# Inside the lab.
PLUGIN = "/usr/lib/slurmrest_adapter.so"
KEY_FILE = "/etc/slurm/sra-spank.key"
SPOOL = "/var/spool/slurmrest-adapter"


def install(lab: Lab) -> None:
    """Build and install the plugin and name it in plugstack.conf, if the profile has it. Safe to repeat."""
    if not lab.profile.spank:
        return
    _build(lab)
    configuration = lab.root / "etc/slurm/plugstack.conf"
    # The package brings one that includes a directory; ours stays as tests may have changed it.
    if not configuration.exists() or PLUGIN not in configuration.read_text():
        configuration.write_text(plugstack(lab))


def plugstack(lab: Lab) -> str:
    """Return plugstack.conf as the lab has it from the start."""
    return (
        f"required {PLUGIN} cluster={releases.CLUSTER} events={lab.events_url} key_file={KEY_FILE} "
        f"spool={SPOOL} report=all\n"
    )


def _build(lab: Lab) -> None:
    include = headers(lab)
    if not all(map(shutil.which, ("gcc", "make"))):
        say("installing a compiler")
        command = ["apt-get", "-qq", "-y", "install", "--no-install-recommends", *TOOLS]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    build = lab.run / "spank"
    build.mkdir(parents=True, exist_ok=True)
    order = ["make", "-s", "-C", str(SOURCES), f"BUILD={build}", f"SLURM_INC={include}"]
    done = subprocess.run(
        [*order, f"DESTDIR={lab.root}", f"PLUGIN_DIR={Path(PLUGIN).parent}", "install"],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        raise LabError(f"the SPANK plugin cannot be built: {done.stdout}{done.stderr}")
    say("SPANK plugin")


def headers(lab: Lab) -> Path:
    """Return an include directory with slurm/spank.h of the lab's own release, fetching it once.

    A suite that has moved on to another release has no headers for the lab any more.
    """
    version = slurm_version(lab.root)
    directory = cache_dir() / "headers" / version
    with locked(f"headers-{version}"):
        if not directory.exists():
            say(f"fetching the headers of Slurm {version}")
            work = directory.with_name(f"{version}.{os.getpid()}.work")
            try:
                work.mkdir(parents=True)
                unpack(Apt(work / "apt", lab.release.suite).download("libslurm-dev"), work / "root")
                include = work / "root/usr/include"
                _check(include, version)
                include.rename(directory)
            finally:
                remove_tree(work)
    return directory


def _check(include: Path, version: str) -> None:
    """Raise LabError unless the headers are of the same major release; Slurm loads a plugin of no other."""
    text = (include / "slurm/slurm_version.h").read_text()
    number = int(text.split("#define SLURM_VERSION_NUMBER", 1)[1].split()[0], 16)
    found = f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02}"
    if found != ".".join(version.split(".")[:2]):
        raise LabError(f"the suite has headers of Slurm {found}, the lab is {version}")

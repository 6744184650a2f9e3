"""kubectl from Debian, unpacked into the cache and not installed: the server's own release and the newest."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from ..labkit.debian import Apt, unpack
from ..labkit.places import cache_dir, locked, remove_tree
from ..labkit.report import LabError, say
from . import recipe


def kubectl(*, old: bool = False) -> Path:
    """Return the path of kubectl, fetched if the cache has none: the newest that works, or the old one."""
    if not old:
        try:
            return _provide(*recipe.KUBECTL_NEW)
        except LabError as error:
            say(f"taking the old kubectl, the newest cannot be had: {error}")
    return _provide(*recipe.KUBECTL_OLD)


def _provide(suite: str, package: str) -> Path:
    """Return kubectl of a suite. Raises LabError if it cannot be fetched or does not run on this machine."""
    directory = cache_dir() / "kube" / "kubectl"
    path = directory / suite / "kubectl"
    with locked(f"kubectl-{suite}"):
        if path.exists():
            return path
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob(f"{suite}.work.*"):  # of a run that was killed
            remove_tree(leftover)
        work = directory / f"{suite}.work.{os.getpid()}"
        try:
            unpack(Apt(work / "apt", suite).download(package), work / "root")
            program = work / "root/usr/bin/kubectl"
            say(f"kubectl of Debian {suite}: {_version(program)}")
            path.parent.mkdir(exist_ok=True)
            program.rename(path)
        finally:
            remove_tree(work)
        return path


def _version(program: Path) -> str:
    """Return the version that a kubectl reports. Raises LabError if it does not run."""
    try:
        command = [str(program), "version", "--client", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{program.name} does not run here: {error}") from error
    if done.returncode:
        raise LabError(f"{program.name} does not run here: {done.stderr.strip()}")
    return str(json.loads(done.stdout)["clientVersion"]["gitVersion"])

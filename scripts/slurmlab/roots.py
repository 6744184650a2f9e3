"""Root file systems: made by mmdebstrap once, kept packed in the cache, unpacked for each lab."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from ..labkit.debian import mirror, proxies
from ..labkit.places import cache_dir, locked, remove_tree
from ..labkit.report import LabError, say
from . import releases
from .layout import Lab

# What nobody reads in a lab.
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")


def root_key(release: releases.Release) -> str:
    """Return the hash of all that goes into a root, apart from the day's package versions."""
    parts = [release.suite, release.extra_suites, release.packages, EXCLUDED, releases.ROOT_RECIPE]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def packed_root(release: releases.Release) -> Path:
    """Return the packed root of a release, making it if the cache has none.

    If it cannot be made, or the suite has moved on to another Slurm, the last good one of the same release is
    used and this is said.
    """
    directory = cache_dir() / "roots"
    path = directory / f"{release.version}-{root_key(release)}.tar.zst"
    with locked(path.stem):
        if path.exists():
            return path
        directory.mkdir(parents=True, exist_ok=True)
        older = sorted(directory.glob(f"{release.version}-*.tar.zst"), key=os.path.getmtime)
        try:
            made, version = _make(release, path)
        except LabError as error:
            if not older:
                raise
            say(f"the root could not be made, taking the last good one, {older[-1].name}: {error}")
            return older[-1]
        if not version.startswith(release.version + "."):
            say(f"the suite {release.suite} has moved on: it has Slurm {version}, not {release.version}")
            if older:
                made.unlink()
                say(f"taking the last good root, {older[-1].name}")
                return older[-1]
            say(f"no older root is in the cache: this lab will run Slurm {version}")
        made.rename(path)
        return path


def _make(release: releases.Release, path: Path) -> tuple[Path, str]:
    """Build and pack a root beside `path`; return the file and the Slurm version in it."""
    work = path.with_suffix(f".work.{os.getpid()}")
    for leftover in path.parent.glob(f"{path.stem}.*.*"):  # of a run that was killed
        if leftover != path and not leftover.name.endswith(".zst"):
            remove_tree(leftover)
    log = path.with_name(path.name.removesuffix(".tar.zst") + ".log")
    suites = (release.suite, *release.extra_suites)
    uri = mirror()
    # The extra suites are pinned so low that nothing comes from them but what the suite does not have.
    pins = "".join(f"Package: *\nPin: release n={s}\nPin-Priority: 100\n\n" for s in release.extra_suites)
    pin_file = path.with_suffix(f".pins.{os.getpid()}")
    pin_file.write_text(pins)
    place_pins = f'd="$1/etc/apt/preferences.d"; mkdir -p "$d" && cp {shlex.quote(str(pin_file))} "$d/lab"'
    command = [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
        f"--setup-hook={place_pins}",
        '--aptopt=APT::Install-Recommends "false"',
        # A release file may be past its date on a machine whose clock runs ahead; signatures stay checked.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *(f"--aptopt={line}" for line in proxies()),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        "--include=" + ",".join(release.packages),
        *(release.suite, str(work), *(f"deb {uri} {suite} main" for suite in suites)),
    ]
    say(f"making a root of Debian {release.suite} with Slurm {release.version} (about a minute, once)")
    try:
        with log.open("wb") as out:
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if done.returncode:
            hint = "check that apt's mirror can be reached (apt-get update), then run it again"
            raise LabError(f"mmdebstrap of {release.suite} failed", log=log, hint=hint)
        version = slurm_version(work)
        say(f"packing the root (Slurm {version})")
        made = path.with_suffix(f".new.{os.getpid()}")
        pack = ["tar", "--zstd", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-cf", str(made), "."]
        subprocess.run(
            pack, cwd=work, check=True, env={**os.environ, "ZSTD_CLEVEL": "3", "ZSTD_NBTHREADS": "0"}
        )
        return made, version
    finally:
        pin_file.unlink(missing_ok=True)
        remove_tree(work)


def slurm_version(root: Path) -> str:
    """Return the upstream version of slurmctld that dpkg has noted in a root."""
    for entry in (root / "var/lib/dpkg/status").read_text(errors="replace").split("\n\n"):
        if entry.startswith("Package: slurmctld\n"):
            found = re.search(r"^Version: (?:\d+:)?([^-\n]+)", entry, re.MULTILINE)
            if found:
                return found[1]
    raise LabError(f"{root}: no slurmctld in it")


def unpack_root(lab: Lab) -> None:
    """Give the lab its own root file system, if it has none."""
    source = lab.dir / "root.txt"
    if lab.root.exists():
        if source.exists() and root_key(lab.release) not in source.read_text():
            say("this lab's root is of an older recipe; down --wipe and up give it a new one")
        return
    packed = packed_root(lab.release)
    lab.dir.mkdir(parents=True, exist_ok=True)
    fresh = lab.dir / "root.new"
    remove_tree(fresh)
    fresh.mkdir()
    say(f"unpacking {packed.name}")
    command = ["tar", "--zstd", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", str(packed)]
    done = subprocess.run(command, cwd=fresh, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabError(
            f"{packed} cannot be unpacked: {done.stderr.strip()}", hint="remove it and run up again"
        )
    source.write_text(packed.name + "\n")
    fresh.rename(lab.root)

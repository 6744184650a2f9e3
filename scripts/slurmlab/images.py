"""The lab's container images: made once from the Debian packages of the root, then taken from the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from ..labkit.places import cache_dir, locked, remove_tree
from ..labkit.report import LabError, say
from . import releases
from .daemons import Supervisor
from .namespace import passwd_entry
from .oci import Layer, Registry, add_from_root
from .roots import root_key

SIF = "busybox.sif"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What Python's packages ask for but a container that runs a script does not need.
_NOT_NEEDED = {"media-types", "tzdata", "netbase", "mailcap", "debconf", "libgcc-s1", "gcc-14-base"}
_ENTRY = """#!/bin/sh
# Says how it was called, then becomes its arguments if the first one is a command.
echo "entry: cwd=$(pwd)"
for word in "$@"; do printf 'entry: arg=[%s]\\n' "$word"; done
shift
if command -v "$1" >/dev/null; then exec "$@"; fi
"""
# Values that a careless reader of an image's configuration would change.
ODD_ENV = (
    'ODD_QUOTES=it\'s "quoted"',
    "ODD_DOLLAR=$HOME ${HOME} $(id) `id`",
    "ODD_BACKSLASH=a\\nb\\",
    "ODD_NEWLINE=first\nsecond\n",
    "ODD_EQUALS=a=b=c",
    "ODD_SPACES=  two  ",
    "ODD_UNICODE=größer ☃",
    "ODD_EMPTY=",
)


def provide(supervisor: Supervisor) -> None:
    """Fill the lab's registry and its directory of local images, from the cache if it has them."""
    lab = supervisor.lab
    local, storage = lab.shared / "images" / SIF, supervisor.host_path("/var/lib/lab-registry")
    marker = lab.run / "images.done"
    # What the images are made of is the root, so its key is in theirs.
    key = hashlib.sha256(json.dumps([root_key(lab.release), releases.IMAGE_RECIPE]).encode()).hexdigest()[:12]
    if marker.exists() and marker.read_text() == key:
        return
    with locked(f"images-{key}"):
        cached = cache_dir() / "images" / key
        if not cached.exists():
            say("making the container images (once)")
            registry = Registry(lab.registry)
            _push_images(registry, lab.root)
            _pull_sif(supervisor)
            _keep(cached, storage, local)
        else:
            subprocess.run(["cp", "-a", f"{cached}/registry/.", str(storage)], check=True)
            shutil.copyfile(cached / SIF, local)
    local.chmod(0o644)
    uid, gid, _, _ = passwd_entry(lab.root, "registry")
    subprocess.run(["chown", "-R", f"{uid}:{gid}", str(storage)], check=True)
    marker.write_text(key)
    say(f"images: lab/busybox:1, lab/python:3 and lab/entry:1 on {lab.registry}; /shared/images/{SIF}")


def _push_images(registry: Registry, root: Path) -> None:
    busybox = _busybox_layer(root)
    python = _python_layer(root)
    entry = Layer()
    entry.file("usr/local/bin/entry", _ENTRY.encode(), 0o755)
    entry.directory("work/dir", 0o777)
    registry.push(
        "lab/busybox",
        "1",
        [busybox],
        {"Env": [_PATH, "LAB_IMAGE=busybox", "GREETING=hello from the image"], "Cmd": ["sh"]},
    )
    registry.push("lab/python", "3", [python], {"Env": [_PATH, "LAB_IMAGE=python"], "Cmd": ["python3"]})
    registry.push(
        "lab/entry",
        "1",
        [busybox, entry.packed()],
        {
            "Env": [_PATH, "LAB_IMAGE=entry", *ODD_ENV],
            "Entrypoint": ["/usr/local/bin/entry", "--fixed arg"],
            "Cmd": ["echo", "default  words", "$HOME"],
            "WorkingDir": "/work/dir",
        },
    )


def _common(layer: Layer) -> None:
    """Add what every image needs: the usual directories, a user database."""
    for name in ("dev", "proc", "sys", "home", "etc", "run", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        layer.directory(name)
    layer.directory("root", 0o700)
    for name in ("tmp", "var/tmp"):
        layer.directory(name, 0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.link(name, f"usr/{name}")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
    layer.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")


def _add_busybox(layer: Layer, root: Path) -> None:
    """Add busybox and a link for each of its applets."""
    binary = root / "usr/bin/busybox"
    layer.file("usr/bin/busybox", binary.read_bytes(), 0o755)
    # Static, so it runs outside the root as well.
    for applet in subprocess.run(
        [binary, "--list"], check=True, capture_output=True, text=True
    ).stdout.split():
        layer.link(f"usr/bin/{applet}", "busybox")


def _busybox_layer(root: Path) -> tuple[bytes, str]:
    layer = Layer()
    _common(layer)
    _add_busybox(layer, root)
    return layer.packed()


def _python_layer(root: Path) -> tuple[bytes, str]:
    """Return a layer with Debian's python3, the libraries it depends on, and busybox for a shell."""
    layer = Layer()
    _common(layer)
    for package in _closure(root, "python3"):
        listed = [root / f"var/lib/dpkg/info/{package}{arch}.list" for arch in ("", ":amd64")]
        for name in next(path for path in listed if path.exists()).read_text().splitlines():
            if name.startswith(("/usr/share/", "/usr/include/")) or "/__pycache__" in name:
                continue
            add_from_root(layer, root, name)
    _add_busybox(layer, root)
    return layer.packed()


def _closure(root: Path, package: str) -> list[str]:
    """Return a package and all it depends on, as dpkg has it noted in a root, without what is not needed."""
    needs: dict[str, set[str]] = {}
    for entry in (root / "var/lib/dpkg/status").read_text(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Depends|Pre-Depends): (.*)$", entry, re.MULTILINE))
        if "Package" in fields:
            words = ",".join((fields.get("Depends", ""), fields.get("Pre-Depends", "")))
            needs[fields["Package"]] = set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]*)", words))
    found: list[str] = []
    wanted = [package]
    while wanted:
        name = wanted.pop()
        if name in needs and name not in found and name not in _NOT_NEEDED:
            found.append(name)
            wanted.extend(sorted(needs[name]))
    return sorted(found)


def _pull_sif(supervisor: Supervisor) -> None:
    source = f"docker://{supervisor.lab.registry}/lab/busybox:1"
    done = supervisor.namespace.call(
        *("apptainer", "-q", "pull", "--no-https", "--disable-cache", "-F", f"/shared/images/{SIF}", source)
    )
    if done.returncode:
        log = supervisor.host_path("/var/log/lab/registry.log")
        raise LabError(f"apptainer could not pull {source}: {done.stderr.strip()}", log=log)


def _keep(cached: Path, storage: Path, sif: Path) -> None:
    """Copy registry and SIF into the cache, whole or not at all."""
    fresh = cached.with_name(f"{cached.name}.new.{os.getpid()}")
    fresh.mkdir(parents=True)
    try:
        subprocess.run(["cp", "-a", str(storage), str(fresh / "registry")], check=True)
        shutil.copyfile(sif, fresh / SIF)
        fresh.rename(cached)
    finally:
        remove_tree(fresh)

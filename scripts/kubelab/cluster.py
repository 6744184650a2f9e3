"""Bringing a lab up and down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ..labkit.places import locked, remove_tree
from ..labkit.processes import wait_until
from ..labkit.report import LabError, say
from . import kubeconfigs, pki, recipe
from .api import Api, ApiError
from .build import build_key, packed_control_plane
from .daemons import Supervisor, daemons, write_kubeconfigs
from .kubectl import kubectl
from .layout import Lab

_PROVIDER = Path(__file__).with_name("provider.yaml")


def up(lab: Lab) -> bool:
    """Bring a lab up; False if it was up already. Raises LabError."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        if lab.complete.exists() and all(supervisor.ready(daemon) for daemon in daemons(lab)):
            return False
        kubectl()
        kubectl(old=True)
        _unpack(lab)
        lab.make_directories()
        lab.complete.unlink(missing_ok=True)
        pki.make(lab)
        write_kubeconfigs(lab)
        pki.kubelet_certificate(lab, recipe.NODE, lab.kubelet)
        for daemon in daemons(lab):
            if supervisor.start(daemon):
                say(f"{daemon.name} on 127.0.0.1:{lab.port(daemon.name)}")
        _furnish(lab)
        lab.complete.touch()
        say("ready")
        return True


def _unpack(lab: Lab) -> None:
    """Give the lab its own programs, if it has none."""
    source = lab.bin / "source"
    if lab.bin.exists():
        if source.read_text().strip() != build_key():
            say("this lab's programs are of another recipe; down --wipe and up give it new ones")
        return
    packed = packed_control_plane()
    fresh = lab.dir / f"bin.new.{os.getpid()}"
    for leftover in lab.dir.glob("bin.new.*"):
        remove_tree(leftover)
    fresh.mkdir(parents=True)
    done = subprocess.run(
        ["tar", "--zstd", "--no-same-owner", "-xf", str(packed)], cwd=fresh, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise LabError(
            f"{packed} cannot be unpacked: {done.stderr.strip()}", hint="remove it and run up again"
        )
    (fresh / "source").write_text(packed.parent.name + "\n")
    fresh.rename(lab.bin)


def _furnish(lab: Lab) -> None:
    """Make the namespaces and the provider's account, and wait until pods can be made."""
    api = Api(lab)
    for name in recipe.NAMESPACES:
        try:
            api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        except ApiError as error:
            if error.status != 409:  # it is there already
                raise LabError(f"the namespace {name} cannot be made: {error}") from error
    config = str(lab.kubeconfigs / "admin")
    command = [str(kubectl(old=True)), "--kubeconfig", config, "apply", "-f", str(_PROVIDER)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LabError(f"the provider's account cannot be made: {done.stderr.strip()}")
    kubeconfigs.for_provider(lab, api)
    # A pod needs the default service account; the authority's certificate goes into its token volume.
    wanted = [
        f"/api/v1/namespaces/{namespace}/{what}"
        for namespace in ("default", *recipe.NAMESPACES)
        for what in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    ]
    if not wait_until(lambda: all(api.exists(path) for path in wanted), 60):
        missing = ", ".join(path for path in wanted if not api.exists(path))
        log = Supervisor(lab).log(Supervisor(lab).named("kube-controller-manager"))
        raise LabError(f"not made by the controller manager: {missing}", log=log)


def down(lab: Lab, *, wipe: bool = False) -> bool:
    """End a lab; `wipe` removes its directory (never the caches). False if there was nothing to end."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        lab.complete.unlink(missing_ok=True)
        # Open watches hold the API server up; nobody needs its farewell if all goes.
        stopped = [supervisor.stop(d, seconds=2 if wipe else 15) for d in reversed(daemons(lab))]
        there = wipe and lab.dir.exists()
        if there:
            remove_tree(lab.dir)
        return any(stopped) or there


def stop_daemon(lab: Lab, name: str) -> bool:
    """Stop one daemon; False if it did not run."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        return supervisor.stop(supervisor.named(name))


def start_daemon(lab: Lab, name: str) -> bool:
    """Start one daemon and wait until it is well; False if it runs already."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        return supervisor.start(supervisor.named(name))

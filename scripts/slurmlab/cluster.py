"""Bringing a lab up and down."""

from __future__ import annotations

from ..labkit.places import locked, remove_tree
from ..labkit.processes import check_port, wait_until
from ..labkit.report import LabError, say
from . import accounts, images, releases, spank
from .daemons import Daemon, Supervisor, clear_run_directories, daemons
from .furniture import furnish, write_configuration
from .layout import Lab
from .roots import unpack_root


def up(lab: Lab) -> bool:
    """Bring a lab up; False if it was up already. Raises LabError."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        if _complete(supervisor):
            spank.install(lab)  # the sources may have changed meanwhile
            return False
        if supervisor.namespace.init_pid() is None:
            _begin(supervisor)
        for daemon in daemons(lab):
            if daemon.name == "mariadbd":
                accounts.make_database(supervisor)
            if supervisor.start(daemon):
                say(daemon.name + (f" on 127.0.0.1:{daemon.port}" if daemon.port else ""))
            if daemon.name == "mariadbd":
                accounts.grant_database(supervisor)
            elif daemon.name == "slurmdbd":
                accounts.make_accounts(supervisor)
        _await_nodes(supervisor)
        accounts.make_reservation(supervisor)
        images.provide(supervisor)
        (lab.run / "complete").touch()
        say("ready")
        return True


def _complete(supervisor: Supervisor) -> bool:
    lab = supervisor.lab
    if not (lab.run / "complete").exists() or supervisor.namespace.init_pid() is None:
        return False
    processes = supervisor.namespace.processes()
    return all(supervisor.pid(d, processes) is not None and supervisor.ready(d) for d in daemons(lab))


def _begin(supervisor: Supervisor) -> None:
    """Make the root and the namespaces, after whatever end the lab had before."""
    lab = supervisor.lab
    for daemon in daemons(lab):  # those outside the PID namespace outlive it
        if daemon.pid_file is None:
            supervisor.stop(daemon)
        check_port(daemon.name, daemon.port)
    unpack_root(lab)
    lab.remember()
    (lab.run / "complete").unlink(missing_ok=True)
    clear_run_directories(lab.root)
    furnish(lab)
    supervisor.namespace.start()
    say("namespaces")


def _await_nodes(supervisor: Supervisor) -> None:
    """Wait until every node has answered slurmctld. A node that somebody drained or downed has, too."""

    def answered() -> bool:
        done = supervisor.namespace.call("sinfo", "-h", "-N", "-p", "all", "-o", "%T")
        states = done.stdout.split()
        return len(states) == len(releases.NODES) and not any("*" in s or s == "unknown" for s in states)

    if not wait_until(answered, 30):
        raise LabError(
            "not all nodes answer slurmctld",
            log=supervisor.host_path("/var/log/slurm/slurmctld.log"),
            hint=f"scripts/slurm-lab restart --name {supervisor.lab.name}",
        )


def down(lab: Lab, *, wipe: bool = False) -> bool:
    """End a lab; `wipe` removes its directory (never the caches). False if there was nothing to end."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        ran = False
        for daemon in reversed(daemons(lab)):
            ran = supervisor.stop(daemon) or ran
        if supervisor.namespace.init_pid() is not None:
            supervisor.namespace.stop()
            ran = True
        if wipe and lab.dir.exists():
            remove_tree(lab.dir)
            ran = True
        return ran


def _chosen(lab: Lab, supervisor: Supervisor, name: str | None) -> list[Daemon]:
    """Return the daemon of that name; without a name Slurm's own daemons."""
    if name is not None:
        return [supervisor.named(name)]
    return [d for d in daemons(lab) if d.name.startswith("slurm")]


def stop_daemon(lab: Lab, name: str) -> bool:
    """Stop one daemon; False if it did not run."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        return supervisor.stop(supervisor.named(name))


def start_daemon(lab: Lab, name: str) -> bool:
    """Start one daemon; False if it runs already."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        return supervisor.start(supervisor.named(name))


def restart(lab: Lab, name: str | None) -> None:
    """Restart one daemon as it is; without a name write the configuration anew and restart all of Slurm."""
    with locked(lab.name):
        supervisor = Supervisor(lab)
        chosen = _chosen(lab, supervisor, name)
        for daemon in reversed(chosen):
            supervisor.stop(daemon)
        if name is None:
            write_configuration(lab)
        for daemon in chosen:
            supervisor.start(daemon)
            say(daemon.name)
        if name is None or name.startswith(("slurmctld", "slurmd-")):
            _await_nodes(supervisor)

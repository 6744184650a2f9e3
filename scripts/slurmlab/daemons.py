"""The daemons of a lab, in the order in which they start, and how each is started, seen and stopped."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..labkit.processes import answers, check_port, end_process, noted_pid, spawn, wait_until
from ..labkit.report import LabError, tail
from . import releases
from .layout import Lab
from .namespace import Namespace, Process

MARIADB_SOCKET = "/run/mysqld/mysqld.sock"
REST_SOCKETS = {"slurmrestd": "/run/slurmrestd/jwt.sock", "slurmrestd-local": "/run/slurmrestd/local.sock"}
START_SECONDS = 30


@dataclass(frozen=True)
class Daemon:
    """One daemon; paths are those inside the lab."""

    name: str
    argv: tuple[str, ...]
    user: str
    log: str
    # Where it (or we, for one that stays in the foreground) notes its pid; none: a process outside the
    # PID namespace, noted beside the lab.
    pid_file: str | None
    port: int | None = None
    socket: str | None = None
    foreground: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def daemons(lab: Lab) -> list[Daemon]:
    """Return the lab's daemons in starting order."""
    found = [
        Daemon(
            name="munged",
            argv=("/usr/sbin/munged", "--num-threads=2"),
            user="munge",
            log="/var/log/munge/munged.log",
            pid_file="/run/munge/munged.pid",
            socket="/run/munge/munge.socket.2",
        )
    ]
    if lab.profile.accounting:
        found += [
            Daemon(
                name="mariadbd",
                argv=(
                    *("mariadbd", "--no-defaults", "--datadir=/var/lib/mysql", "--skip-networking"),
                    *(f"--socket={MARIADB_SOCKET}", "--skip-log-bin", "--innodb-buffer-pool-size=128M"),
                    *("--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"),
                    # Slurm's own statements trip over it from MariaDB 11.6 on.
                    "--innodb-snapshot-isolation=OFF",
                ),
                user="mysql",
                log="/var/log/lab/mariadbd.log",
                pid_file="/run/lab/mariadbd.pid",
                socket=MARIADB_SOCKET,
                foreground=True,
            ),
            Daemon(
                name="slurmdbd",
                argv=("slurmdbd",),
                user="slurm",
                log="/var/log/slurm/slurmdbd.log",
                pid_file="/run/slurm/slurmdbd.pid",
                port=lab.dbd_port,
            ),
        ]
    found.append(
        Daemon(
            name="slurmctld",
            argv=("slurmctld",),
            user="slurm",
            log="/var/log/slurm/slurmctld.log",
            pid_file="/run/slurm/slurmctld.pid",
            port=lab.ctld_port,
        )
    )
    for node in releases.NODES:
        found.append(
            Daemon(
                name=f"slurmd-{node}",
                argv=("slurmd", "-N", node),
                user="root",
                log=f"/var/log/slurm/slurmd-{node}.log",
                pid_file=f"/run/slurm/slurmd-{node}.pid",
                port=lab.slurmd_port(node),
            )
        )
    # Two, because one cannot do both: rest_auth/jwt wants SLURM_JWT set in its environment, rest_auth/local
    # wants it unset. And outside the PID namespace, because rest_auth/local refuses a peer whose pid it
    # cannot see, which is every client on the machine itself.
    parts = () if lab.profile.accounting or lab.release.slurmdb_always else ("-s", "slurmctld")
    for name, auth in (("slurmrestd", "jwt"), ("slurmrestd-local", "local")):
        tcp = lab.rest_port if auth == "jwt" else None
        found.append(
            Daemon(
                name=name,
                argv=(
                    *("slurmrestd", "-a", f"rest_auth/{auth}", *parts, f"unix:{REST_SOCKETS[name]}"),
                    *([f"127.0.0.1:{tcp}"] if tcp else []),
                ),
                user="restd",
                log=f"/var/log/lab/{name}.log",
                pid_file=None,
                port=tcp,
                socket=REST_SOCKETS[name],
                # Twenty threads that each decode a large answer keep an arena each: gigabytes that
                # are free and never given back.
                env={"MALLOC_ARENA_MAX": "2", **({"SLURM_JWT": "daemon"} if auth == "jwt" else {})},
            )
        )
    found.append(
        Daemon(
            name="registry",
            argv=("docker-registry", "serve", "/etc/slurm/registry.yml"),
            user="registry",
            log="/var/log/lab/registry.log",
            pid_file="/run/lab/registry.pid",
            port=lab.registry_port,
            foreground=True,
        )
    )
    return found


class Supervisor:
    """Starts, finds and stops the daemons of one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.namespace = Namespace(lab)

    def named(self, name: str) -> Daemon:
        """Return the daemon of that name. Raises LabError if the lab has none."""
        known = {daemon.name: daemon for daemon in daemons(self.lab)}
        if name not in known:
            raise LabError(f"no daemon {name!r} in this lab; there is {', '.join(known)}")
        return known[name]

    def host_path(self, inner: str) -> Path:
        """Return where a path inside the lab is seen from outside."""
        return self.lab.root / inner.lstrip("/")

    def _note(self, daemon: Daemon) -> Path:
        return self.lab.run / f"{daemon.name}.json"

    def pid(self, daemon: Daemon, processes: dict[int, Process] | None = None) -> int | None:
        """Return the machine's pid of a daemon that runs, else None. `processes`: Namespace.processes()."""
        if daemon.pid_file is None:
            return noted_pid(self._note(daemon))
        try:
            inner = int(self.host_path(daemon.pid_file).read_text())
        except (OSError, ValueError):
            return None
        found = (self.namespace.processes() if processes is None else processes).get(inner)
        # A pid file may be stale and its number used again by something else. After scontrol reconfigure
        # Slurm's daemons are called by the name of their file, slurmctld-wlm.
        return found.pid if found and found.name.startswith(Path(daemon.argv[0]).name[:15]) else None

    def ready(self, daemon: Daemon) -> bool:
        """Say whether the daemon answers where it should listen."""
        return (daemon.port is None or answers(daemon.port)) and (
            daemon.socket is None or self._socket_answers(daemon.socket)
        )

    def _socket_answers(self, path: str) -> bool:
        init = self.namespace.init_pid()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            try:
                # By way of /proc: the path of a unix socket may be 107 bytes long, and caches lie deep.
                client.connect(f"/proc/{init}/root{path}")
            except OSError:
                return False
        return True

    def start(self, daemon: Daemon) -> bool:
        """Start a daemon and wait until it answers; False if it ran already. Raises LabError with its log."""
        if self.pid(daemon) is not None:
            return False
        check_port(daemon.name, daemon.port)
        for stale in (daemon.pid_file, daemon.socket):
            if stale:
                self.host_path(stale).unlink(missing_ok=True)
        log = self.host_path(daemon.log)
        command = self.namespace.command(
            daemon.argv, user=daemon.user, env=daemon.env, pid_namespace=daemon.pid_file is not None
        )
        if daemon.pid_file is None:
            spawn(command, log=log, note=self._note(daemon))
        elif daemon.foreground:
            self._start_in_background(daemon)
        else:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                words = done.stderr.strip()
                raise LabError(f"{daemon.name} does not start (exit {done.returncode}): {words}", log=log)
        if not wait_until(lambda: self.pid(daemon) is not None and self.ready(daemon), START_SECONDS):
            state = "does not answer" if self.pid(daemon) else "has ended"
            raise LabError(
                f"{daemon.name} {state} {START_SECONDS} s after its start",
                log=log,
                hint=f"scripts/slurm-lab down --name {self.lab.name}, then up; or down --wipe to begin anew",
            )
        return True

    def _start_in_background(self, daemon: Daemon) -> None:
        """Start a daemon that knows no background itself: a shell notes its pid and becomes it."""
        uid_gid = f"$(id -u {daemon.user})", f"$(id -g {daemon.user})"
        script = (
            "echo $$ > $0; exec setpriv --reuid="
            + uid_gid[0]
            + " --regid="
            + uid_gid[1]
            + ' --init-groups "$@"'
        )
        inner = ["setsid", "/bin/sh", "-c", script, str(daemon.pid_file), *daemon.argv]
        outer = ["/bin/sh", "-c", 'log=$0; "$@" </dev/null >>"$log" 2>&1 &', daemon.log, *inner]
        done = subprocess.run(
            self.namespace.command(outer, env=daemon.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise LabError(f"{daemon.name} does not start: {done.stderr.strip()}")

    def stop(self, daemon: Daemon) -> bool:
        """End a daemon and wait until it is gone; False if it did not run."""
        pid = self.pid(daemon)
        if pid is None:
            return False
        end_process(pid)
        for stale in (daemon.pid_file, daemon.socket):
            if stale:
                self.host_path(stale).unlink(missing_ok=True)
        return True

    def why(self, daemon: Daemon) -> str:
        """Return the end of a daemon's log."""
        return tail(self.host_path(daemon.log))


def clear_run_directories(root: Path) -> None:
    """Remove pid files and sockets of a life before."""
    for directory in ("munge", "mysqld", "slurm", "slurmrestd", "lab"):
        path = root / "run" / directory
        if path.is_dir():
            for entry in path.iterdir():
                if not entry.is_dir():
                    entry.unlink()

"""The namespaces a lab lives in: starting them, running commands inside, seeing the processes there."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..labkit.processes import note_pid, noted_pid, wait_until
from ..labkit.report import LabError
from . import releases
from .layout import Lab

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Process:
    """A process as the machine sees it (`pid`) and as the lab sees it (`inner`)."""

    pid: int
    inner: int
    name: str


class Namespace:
    """The mount, PID, UTS and IPC namespaces of one lab (the network is the machine's)."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._note = lab.run / "init.json"

    def init_pid(self) -> int | None:
        """Return the machine's pid of the lab's process 1, None if the lab is not up."""
        return noted_pid(self._note)

    def start(self) -> None:
        """Make the namespaces. Raises LabError with init's own words if that fails."""
        log = self.lab.run / "init.log"
        command = [
            *("unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"),
            *("/bin/bash", str(Path(__file__).with_name("init.sh"))),
            *(str(self.lab.root), releases.HOSTNAME, str(self.lab.shared)),
        ]
        with log.open("wb") as out:
            outer = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out, start_new_session=True
            )
        assert outer.stdout is not None
        said = outer.stdout.readline()
        if said != b"ready\n":
            outer.wait()
            hint = (
                "the lab needs real root: CAP_SYS_ADMIN, mknod and namespaces (not an unprivileged container)"
            )
            raise LabError("the lab's namespaces could not be made", log=log, hint=hint)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        note_pid(self._note, int(children[0]))

    def processes(self) -> dict[int, Process]:
        """Return all processes in the lab's PID namespace, by the id they have inside."""
        init = self.init_pid()
        if init is None:
            return {}
        mine = Path(f"/proc/{init}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if (entry / "ns/pid").readlink() != mine:
                    continue
                status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines())
            except (OSError, ValueError):
                continue  # it has ended meanwhile
            if status["State"][0] not in "ZX":
                inner = int(status["NSpid"].split()[-1])
                found[inner] = Process(int(entry.name), inner, status["Name"])
        return found

    def command(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        pid_namespace: bool = True,
        login: bool = False,
    ) -> list[str]:
        """Return the command line that runs `argv` inside as that user with a clean, login-like environment.

        With `login` the directory is the user's home. Raises LabError if lab or user are not there.
        """
        init = self.init_pid()
        if init is None:
            raise LabError(
                f"the lab {self.lab.name} is not up",
                hint="scripts/slurm-lab up " + " ".join(self.lab.options),
            )
        uid, gid, home, shell = passwd_entry(self.lab.root, user)
        values = {
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": shell,
            "PATH": PATH,
            "LANG": "C.UTF-8",
        }
        values.update(env or {})
        become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups"] if uid else []
        # The shell's exec, not env's: a command word may hold "=".
        start = 'cd "$1" 2>/dev/null || cd /; unset OLDPWD; shift; exec "$@"'
        launch = ["/bin/sh", "-c", start, "slurm-lab", home if login else "/", *argv]
        return [
            *("nsenter", "-t", str(init), "-m", "-u", "-i", *(["-p"] if pid_namespace else [])),
            *(*become, "env", "-i", *(f"{k}={v}" for k, v in values.items()), *launch),
        ]

    def call(
        self, *argv: str, user: str = "root", env: Mapping[str, str] | None = None, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return its outcome, output captured."""
        return subprocess.run(
            self.command(argv, user=user, env=env),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            errors="replace",
        )

    def stop(self) -> None:
        """End the lab's process 1, and with it everything in the PID namespace."""
        init = self.init_pid()
        if init is not None:
            os.kill(init, signal.SIGKILL)
            wait_until(lambda: self.init_pid() is None, 10)
        self._note.unlink(missing_ok=True)


def passwd_entry(root: Path, user: str) -> tuple[int, int, str, str]:
    """Return uid, gid, home and shell of a user of the lab. Raises LabError if there is none."""
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user:
            return int(fields[2]), int(fields[3]), fields[5], fields[6]
    raise LabError(f"the lab has no user {user!r}")

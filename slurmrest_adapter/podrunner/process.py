"""Start programs and workers as children, and say how they ended.

Not `subprocess`: the pod's first process reaps *every* child by one `waitpid(-1)`, which would take
the exit status away from under `Popen`.
"""

import marshal
import os
import signal
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from . import syscalls
from .light import suppress

PROC = "/proc"
_RESET = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGPIPE,  # Python ignores it; a container must not inherit that
    signal.SIGXFSZ,
)
_START_TIME = 19  # among what `stats` answers


class Ended(NamedTuple):
    """How a process ended: `code` as a shell gives it (128+s after signal s), `signal` if it was one."""

    code: int
    signal: Optional[int]


def decode(status: int) -> Ended:
    """What a `waitpid` status means."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Ended(128 + number, number)
    return Ended(os.WEXITSTATUS(status), None)


def fork_clean() -> int:
    """Fork; the child leads its own session and has default signal handling, with no gap between.

    A TERM that came to the child while it still had our handlers would be written into our own
    wake-up pipe, so signals are blocked over the fork.
    """
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with(parent: int) -> None:
    """Until it executes a program that has other rights, this process ends when its parent has."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before
        os._exit(1)


def spawn(
    argv: List[str],
    env: Dict[str, str],
    stdout: int,
    stderr: int,
    prepare: Optional[Callable[[], None]] = None,
) -> int:
    """Execute `argv` with exactly `env`, no standard input, in ``/``; answer its pid.

    `prepare` runs in the child just before. If the program cannot be executed, the child says so on
    `stderr` and exits 255, as Apptainer does for what it cannot start.
    """
    pid = fork_clean()
    if pid:
        return pid
    try:
        os.chdir("/")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in (0, 1, 2):
            os.set_inheritable(descriptor, True)
        if prepare is not None:
            prepare()
        os.execvpe(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001  nothing may return into the parent's code
        os.write(2, "FATAL:   cannot execute {}: {}\n".format(argv[0], error).encode("utf-8", "replace"))
    os._exit(255)


def worker(body: Callable[[], None]) -> int:
    """Run `body` in a child and answer its pid; it exits 0, or 1 after an exception, and dies with us."""
    parent = os.getpid()
    pid = fork_clean()
    if pid:
        return pid
    code = 1
    try:
        _die_with(parent)
        body()
        code = 0
    except BaseException:  # noqa: BLE001  nothing may return into the parent's code
        import traceback  # large, and seldom needed

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Guard:
    """Kills what is left of the processes it was told of when we have ended, however that was.

    PR_SET_PDEATHSIG does not do that: Apptainer clears it in its own processes. Nor may the guard be our
    child: Slurm kills what descends from the batch process when that has ended, the guard before it has
    done its work. So it is adopted by the machine's first process, where only a control group finds it,
    which finds the others too.
    """

    def __init__(self) -> None:
        reader, self._writer = os.pipe()

        def leave() -> None:
            if os.fork():
                return
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm's, to all of the job at once
            os.close(self._writer)
            _wait_and_kill(reader)

        os.waitpid(worker(leave), 0)
        os.close(reader)

    def watch(self) -> None:
        """Tell it of the process that calls, before it executes another program.

        By the child itself, so that there is no moment in which we may end and leave it untold.
        """
        # Somebody may have killed the guard; that must not end a container.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._tell(os.getpid())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def ended(self, pid: int) -> None:
        """Tell it of a child that was reaped: its number may come again."""
        self._tell(-pid)

    def _tell(self, pid: int) -> None:
        with suppress(OSError):
            os.write(self._writer, "{}\n".format(pid).encode("ascii"))


def _wait_and_kill(reader: int) -> None:
    left: Dict[int, bytes] = {}
    with os.fdopen(reader) as stream:
        for line in stream:
            pid = int(line)
            if pid > 0:
                left[pid] = _started(pid)
            else:
                left.pop(-pid, None)
    for pid, started in left.items():
        if started == _started(pid):
            kill(pid, signal.SIGKILL)


def _started(pid: int) -> bytes:
    """When a process started, in the kernel's ticks; empty if there is none of this number."""
    fields = _stat(str(pid))
    return fields[_START_TIME] if fields else b""


def apart(body: Callable[[], Any]) -> Any:
    """Answer what `body` answers, plain values, but run it in a child; raises OSError if that fails.

    The runner stays for days: what a single step has to import would stay in its memory.
    """
    reader, writer = os.pipe()

    def tell() -> None:
        with os.fdopen(writer, "wb") as stream:
            marshal.dump(body(), stream)

    pid = worker(tell)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    if not data:
        raise OSError("a step of the start failed; see runner.log")
    return marshal.loads(data)


def call(*argv: str) -> int:
    """Run a program that says nothing and answer its exit code."""
    nowhere, us = os.open(os.devnull, os.O_WRONLY), os.getpid()
    try:
        pid = spawn(list(argv), dict(os.environ), nowhere, nowhere, lambda: _die_with(us))
        return decode(os.waitpid(pid, 0)[1]).code
    finally:
        os.close(nowhere)


def kill(pid: int, number: int, group: bool = False) -> None:
    """Signal a child (or its process group); one that is gone is no error."""
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def find_program(name: str, also: Iterable[str] = ()) -> Optional[str]:
    """The path of a program on PATH or in the directories `also`; None if there is none."""
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep) + list(also):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def stats() -> Dict[int, List[bytes]]:
    """What /proc/PID/stat has after the program's name, by pid: the state, the parent, and so on."""
    found: Dict[int, List[bytes]] = {}
    for entry in filter(str.isdigit, os.listdir(PROC)):
        fields = _stat(entry)
        if fields:
            found[int(entry)] = fields
    return found


def _stat(pid: str) -> List[bytes]:
    try:
        with open("{}/{}/stat".format(PROC, pid), "rb") as stream:
            # The name is in parentheses and may hold anything.
            return stream.read().rpartition(b")")[2].split()
    except OSError:  # it has ended
        return []


def descendants(pid: int, known: Optional[Dict[int, List[bytes]]] = None) -> List[int]:
    """The processes below `pid`, by /proc or by what `stats` has answered."""
    children: Dict[int, List[int]] = {}
    for one, fields in (stats() if known is None else known).items():
        children.setdefault(int(fields[1]), []).append(one)
    found: List[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(below)
    return found


def namespace_pids(pid: int) -> List[str]:
    """A process's numbers in our PID namespace and in those below it; empty if /proc does not tell."""
    try:
        with open("/proc/{}/status".format(pid), "rb") as stream:
            for line in stream:
                if line.startswith(b"NSpid:"):
                    return line.decode("ascii").split()[1:]
    except OSError:
        pass
    return []


def program_of(pid: int) -> Optional[str]:
    """What /proc says a process executes; None if it does not tell."""
    try:
        return os.readlink("/proc/{}/exe".format(pid))
    except OSError:
        return None

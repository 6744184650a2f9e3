"""Start a container's program with exactly its argv, environment and directory.

Apptainer sets variables by a shell, adds its own, and says whatever fails by exit code 255. So in the
sandbox it only brings images, and the container is made here: a PID namespace whose first process
builds the root (`assemble`), gives up all privileges and forks the program, which calls execve itself.
What cannot be started comes back in words on a pipe, and so does the program's true wait status.
"""

import errno
import os
from typing import Dict, List, NamedTuple, Optional

from . import assemble, first, process, syscalls
from .container import DEFAULT_PATH, NOT_EXECUTABLE, NOT_FOUND, START_FAILED, CannotRun, Start
from .light import suppress

_PROBLEM = b"E"  # what a report begins with that is no status: a code, a space, words, a NUL
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
# Variables of an image that was no OCI image come from scripts in it, which Apptainer would read.
_SCRIPTS = "/.singularity.d/env"
_READ_SCRIPTS = 'for f in {}/*.sh; do [ -f "$f" ] && . "$f"; done; exec cat /proc/self/environ'
_THE_SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_", "PS1")


class Container(NamedTuple):
    """A container that was begun: the pid of its first process, and the descriptor of its report."""

    pid: int
    report: int


def spawn(start: Start, place: assemble.Place, stdout: int, stderr: int) -> Container:
    """Begin a container; raises OSError. The caller waits for the pid and then reads the report."""
    # Here and not in the children: they start at the same time, and each is number 1 to itself.
    executable = first.prepare(place.init)
    reader, writer = os.pipe()
    mine = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        # Only for the next child, so the way back is taken at once.
        syscalls.unshare(syscalls.CLONE_NEWPID)
        try:
            pid = process.fork_clean()
            if pid == 0:
                _first(start, place, stdout, stderr, writer, executable)
        finally:
            syscalls.set_namespace(mine, syscalls.CLONE_NEWPID)
    finally:
        os.close(mine)
        os.close(writer)
        if executable >= 0:
            os.close(executable)
    return Container(pid, reader)


def ended(container: Container, status: int) -> process.Ended:
    """How a container ended whose first process was waited for; raises CannotRun if it never began."""
    with os.fdopen(container.report, "rb") as stream:
        report = stream.read()
    if report.startswith(_PROBLEM):
        code, _, message = report[1:].partition(b"\0")[0].decode("utf-8", "surrogatepass").partition(" ")
        raise CannotRun(int(code), message)
    if len(report) == 4:
        return process.decode(int.from_bytes(report, "little"))
    if os.WIFSIGNALED(status):  # the whole namespace was killed
        return process.decode(status)
    raise CannotRun(START_FAILED, "the container's first process ended; see runner.log")


def main_pid(init: int) -> Optional[int]:
    """The pid, as it is here, of the program of a container; None if it is not there (yet)."""
    depth = len(process.namespace_pids(init))
    for pid in process.descendants(init):
        inside = process.namespace_pids(pid)
        if len(inside) == depth and inside[-1:] == ["2"]:
            return pid
    return None


def _first(
    start: Start, place: assemble.Place, stdout: int, stderr: int, report: int, executable: int
) -> None:
    """The container's first process."""
    try:
        os.umask(0o022)  # as container runtimes have it
        assemble.build(place, start.cwd, start.env["HOME"])
        syscalls.give_up_privileges()
        if os.fork() == 0:
            _program(start, place, stdout, stderr, report)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        first.become(executable, report)
    except BaseException as error:  # noqa: BLE001  nothing may return into the parent's code
        _tell(report, error)
    os._exit(1)


def _program(start: Start, place: assemble.Place, stdout: int, stderr: int, report: int) -> None:
    """The process that becomes the container's program."""
    try:
        os.setsid()
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
            os.set_inheritable(target, True)
        try:
            os.chdir(start.cwd)
        except OSError as error:
            raise CannotRun(START_FAILED, "working directory {!r}: {}".format(start.cwd, error.strerror))
        env = start.env
        if not place.oci:
            env = _of_scripts()
            env.update(start.env)
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the listing's own is closed already
                if int(name) > 2:
                    os.set_inheritable(int(name), False)
        execute(start.argv, env)
    except BaseException as error:  # noqa: BLE001  nothing may return into the parent's code
        _tell(report, error)
    os._exit(1)


def _tell(report: int, error: BaseException) -> None:
    code = START_FAILED
    if isinstance(error, CannotRun):
        code = error.code
    elif not isinstance(error, OSError):
        import traceback  # large, and seldom needed

        traceback.print_exc()
    words = "{} {}".format(code, str(error)[:2000].replace("\0", " "))
    os.write(report, _PROBLEM + words.encode("utf-8", "surrogatepass") + b"\0")


def execute(argv: List[str], env: Dict[str, str]) -> None:
    """Execute a program as a shell would find it; raises CannotRun with a shell's exit code."""
    name = argv[0]
    words = [_bytes(word) for word in argv]
    variables = {_bytes(key): _bytes(value) for key, value in env.items()}
    places = [name] if "/" in name else [os.path.join(part, name) for part in _path(env) if name]
    worst = (NOT_FOUND, "no such file or directory" if "/" in name else "executable file not found in $PATH")
    for place in places:
        try:
            os.execve(_bytes(place), words, variables)
        except OSError as error:
            if error.errno in _MISSING:
                continue
            if error.errno == errno.EACCES:
                directory = os.path.isdir(place)
                if not directory or "/" in name:
                    worst = (NOT_EXECUTABLE, "is a directory" if directory else "permission denied")
                continue
            code = NOT_EXECUTABLE if error.errno == errno.ENOEXEC else START_FAILED
            raise CannotRun(code, "exec: {!r}: {}".format(name, error.strerror))
    raise CannotRun(worst[0], "exec: {!r}: {}".format(name, worst[1]))


def _path(env: Dict[str, str]) -> List[str]:
    return [part or "." for part in env.get("PATH", DEFAULT_PATH).split(":")]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _of_scripts() -> Dict[str, str]:
    """The variables of an image that was made for Apptainer; none where it has no scripts or shell."""
    found: Dict[str, str] = {}
    if not os.path.isdir(_SCRIPTS):
        return found
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writer, 1)
            os.set_inheritable(1, True)
            os.execve("/bin/sh", ["sh", "-c", _READ_SCRIPTS.format(_SCRIPTS)], {"PATH": DEFAULT_PATH})
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    for pair in text.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = pair.partition("=")
        if equals and name and name not in _THE_SHELLS_OWN:
            if not name.startswith(("APPTAINER", "SINGULARITY")):
                found[name] = value
    return found

"""How one container is started: its argv, environment and working directory, by the kubelet's rules.

In plain mode Apptainer starts it. That cannot carry every variable, so some are refused. It also looks a
command up by itself, but says whatever goes wrong with one exit code, 255, that a program may use too: so
what the kernel would refuse is looked for first, in the root file system.
"""

import os
import stat
from collections import OrderedDict
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .plan import ContainerPlan
from .volumes import Bound

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_FOUND, NOT_EXECUTABLE, START_FAILED = 127, 126, 128
# The shell code by which Apptainer sets a container's variables uses these itself. Seen with 1.4.5: each
# came out lost or changed; neighbours such as PWD, IFS, PS1 or APPTAINER_NAME came out right.
_TAKEN: Tuple[str, ...] = (
    "UID",
    "EUID",
    "GID",
    "e",
    "key",
    "__script__",
    "__exported_env__",
    "__apptainer_cmd__",
)
_TAKEN += ("PROMPT_COMMAND", "PREPEND_PATH", "APPEND_PATH", "SINGULARITY_ENVIRONMENT")
_TAKEN += ("APPTAINER_SHELL", "SINGULARITY_SHELL", "APPTAINER_APPNAME", "SINGULARITY_APPNAME")
_LONGEST = 131071  # bytes of one string that the kernel takes
_LINKS = 40  # symbolic links followed in one path, as in the kernel
_RUNSCRIPT = "/.singularity.d/runscript"
# Where paths of the container lie on the node.
NOTHING: Mapping[str, str] = {}


class CannotRun(Exception):
    """The container cannot be started; `code` is its exit code, the text goes to its status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Start(NamedTuple):
    """Everything that starts it; `make_cwd` if the working directory is missing in the image.

    `home` is for Apptainer, which takes HOME in no other way. `notes` are for the container's
    message: what of the image was left out.
    """

    argv: List[str]
    env: Dict[str, str]
    home: str
    cwd: str
    make_cwd: bool
    notes: List[str]


def resolve(
    container: ContainerPlan,
    config: Optional[Dict[str, Any]],
    root: str,
    gpu_env: Dict[str, str],
    mounts: Iterable[Bound] = (),
    exact: bool = False,
) -> Start:
    """Work out one container's start from its plan, its image and its volumes; raises CannotRun.

    `config` is the image's OCI configuration (Entrypoint, Cmd, Env…), None for an image that has
    none: then a pod without a command runs the image's own runscript. `exact`: not by Apptainer.
    """
    image = config or {}
    entrypoint = image.get("Entrypoint") or []
    if config is None and find(root, _RUNSCRIPT):
        entrypoint = [_RUNSCRIPT]
    argv = command_line(container.command, container.args, entrypoint, image.get("Cmd") or [])
    env, notes = environment(image.get("Env") or [], gpu_env, container.env, exact)
    if config is not None:
        env.setdefault("PATH", DEFAULT_PATH)
    cwd = container.working_dir or image.get("WorkingDir") or "/"
    if not cwd.startswith("/"):
        raise CannotRun(START_FAILED, "working directory {!r} is not an absolute path".format(cwd))
    if exact:
        env.setdefault("HOME", "/")
        return Start(argv, env, env["HOME"], cwd, False, notes)
    home = env.pop("HOME", "/")
    if not home.startswith("/") or ":" in home or "," in home:
        raise CannotRun(START_FAILED, "env HOME: must be an absolute path without colon and comma here")
    cwd = os.path.normpath("/" + cwd.lstrip("/"))
    bound = places(root, mounts)
    make_cwd = check_directory(root, cwd, bound)
    check_command(root, argv[0], env.get("PATH", DEFAULT_PATH), cwd, bound)
    return Start(argv, env, home, cwd, make_cwd, notes)


def command_line(
    command: Optional[List[str]], args: Optional[List[str]], entrypoint: List[str], cmd: List[str]
) -> List[str]:
    """Kubernetes' rule: `command` replaces ENTRYPOINT and drops CMD, `args` replaces CMD."""
    if command:
        argv = list(command) + list(args or [])
    else:
        argv = list(entrypoint) + list(args if args else cmd)
    if not argv:
        raise CannotRun(START_FAILED, "no command: neither the pod nor the image names one")
    return argv


def environment(
    image_env: Iterable[str],
    gpu_env: Dict[str, str],
    pod_env: Iterable[Tuple[str, str]],
    exact: bool = False,
) -> Tuple[Dict[str, str], List[str]]:
    """Merge the variables, the pod's last; answers them and notes on what of the image was left out.

    Apptainer sets the variables by a shell: one name that is no identifier there makes it lose
    *all* of them without a word. So such a name in the pod is refused here, raising CannotRun.
    """
    merged: Dict[str, str] = OrderedDict()
    notes = []
    why = impossible if exact else refusal
    for pair in image_env:
        name, _, value = pair.partition("=")
        problem = why(name, value)
        if problem and name:
            notes.append("the image's variable {!r} is left out: {}".format(name, problem))
        elif name:
            merged[name] = value
    merged.update(gpu_env)
    for name, value in pod_env:
        problem = why(name, value)
        if problem:
            raise CannotRun(START_FAILED, "env {!r}: {}".format(name, problem))
        merged[name] = value
    return merged, notes


def impossible(name: str, value: str) -> Optional[str]:
    """Why no process can have this variable; None if one can. Never tells the value."""
    if not name or "=" in name:
        return "the name is empty or holds '='"
    if len(name.encode("utf-8", "surrogatepass") + value.encode("utf-8", "surrogatepass")) + 2 > _LONGEST:
        return "is longer than the {} bytes that a process can be given".format(_LONGEST)
    return None


def refusal(name: str, value: str) -> Optional[str]:
    """Why Apptainer cannot pass a variable exactly; None if it can. Never tells the value."""
    if not name.isidentifier() or max(name) > "z":
        return "the name is no shell identifier, which Apptainer (podrunner mode plain) cannot pass"
    if name in _TAKEN:
        return "Apptainer (podrunner mode plain) uses this name itself"
    if name == "LD_LIBRARY_PATH" and value:
        return "Apptainer (podrunner mode plain) appends to it"
    if "\r\n" in value:
        return "holds a carriage return before a newline, which Apptainer (podrunner mode plain) drops"
    if "\x80" in value or "\x81" in value:  # marks of its shell's own parser
        return "holds U+0080 or U+0081, at which Apptainer (podrunner mode plain) breaks off"
    return impossible("APPTAINERENV_" + name, value)


def places(root: str, mounts: Iterable[Bound]) -> Mapping[str, str]:
    """Where each mount's path really is in the container → what is mounted there."""
    bound: Dict[str, str] = {}
    for mount in mounts:
        bound[_real(root, mount.target, bound) or mount.target] = mount.source
    return bound


def find(root: str, path: str, mounts: Mapping[str, str] = NOTHING) -> Optional[str]:
    """Where an absolute path of the container lies on the node, every link followed inside `root`.

    None if it does not exist, or the links go round in circles.
    """
    real = _real(root, path, mounts)
    place = None if real is None else _place(root, real, mounts)
    return place if place is not None and os.path.lexists(place) else None


def _real(root: str, path: str, mounts: Mapping[str, str]) -> Optional[str]:
    """The path without links, whether it exists to its end or not; None if they go in circles."""
    pending = [part for part in path.split("/") if part]
    done: List[str] = []
    links = 0
    while pending:
        part = pending.pop(0)
        if part == ".":
            continue
        if part == "..":
            done = done[:-1]
            continue
        here = _place(root, "/" + "/".join([*done, part]), mounts)
        try:
            target = os.readlink(here)
        except (OSError, ValueError):  # no link, or nothing at all
            done.append(part)
            continue
        links += 1
        if links > _LINKS:
            return None
        if target.startswith("/"):
            done = []
        pending = [piece for piece in target.split("/") if piece] + pending
    return "/" + "/".join(done)


def _mounted(path: str, mounts: Mapping[str, str]) -> Optional[str]:
    """The innermost mount that holds this path."""
    holders = [target for target in mounts if (path + "/").startswith(target + "/")]
    return max(holders, key=len) if holders else None


def _place(root: str, path: str, mounts: Mapping[str, str]) -> str:
    target = _mounted(path, mounts)
    if target is None:
        return os.path.join(root, path.lstrip("/"))
    return os.path.join(mounts[target], path[len(target) :].lstrip("/")).rstrip("/")


def check_directory(root: str, cwd: str, mounts: Mapping[str, str] = NOTHING) -> bool:
    """Whether the working directory has to be made; raises CannotRun if it is something else."""
    real = _real(root, cwd, mounts) or cwd
    if any(target.startswith(real.rstrip("/") + "/") for target in mounts):
        return False  # it comes with what is mounted below it
    place = find(root, cwd, mounts)
    if _mounted(real, mounts) is not None:
        if place is None:
            os.makedirs(_place(root, real, mounts), 0o755)
        elif not os.path.isdir(place):
            raise CannotRun(START_FAILED, "working directory {!r} is not a directory".format(cwd))
        return False
    # Apptainer puts empty file systems of its own over these, so what the image has there is hidden.
    if cwd.startswith(("/tmp/", "/var/tmp/")):
        return True
    if place is None:
        return True
    if not os.path.isdir(place):
        raise CannotRun(START_FAILED, "working directory {!r} is not a directory".format(cwd))
    return False


def check_command(root: str, name: str, path: str, cwd: str, mounts: Mapping[str, str] = NOTHING) -> None:
    """Raise CannotRun with a shell's exit code if the kernel would not execute `name`."""
    if "/" in name:
        problem = _problem(root, os.path.join(cwd, name), mounts)
        if problem:
            raise CannotRun(problem[0], "exec: {!r}: {}".format(name, problem[1]))
        return
    worst = (NOT_FOUND, "executable file not found in $PATH")
    for directory in path.split(":") if name else []:
        problem = _problem(root, os.path.join(cwd, directory, name), mounts)
        if problem is None:
            return
        if problem[0] == NOT_EXECUTABLE and problem[1] != "is a directory":
            worst = problem
    raise CannotRun(worst[0], "exec: {!r}: {}".format(name, worst[1]))


def _problem(root: str, path: str, mounts: Mapping[str, str]) -> Optional[Tuple[int, str]]:
    place = find(root, path, mounts)
    if place is None:
        return NOT_FOUND, "no such file or directory"
    mode = os.stat(place).st_mode
    if stat.S_ISDIR(mode):
        return NOT_EXECUTABLE, "is a directory"
    if not mode & 0o111:
        return NOT_EXECUTABLE, "permission denied"
    return None


def fatal(stderr: bytes) -> Optional[CannotRun]:
    """What Apptainer said when it did not start the program; None if this is not its word.

    `stderr` is all the container wrote there; Apptainer, told to be silent, then wrote one line.
    """
    text = stderr.decode("utf-8", "replace").strip()
    if not text.startswith("FATAL:   ") or "\n" in text:
        return None
    words = text[len("FATAL:") :].strip()
    if "executable file not found" in words or "no such file or directory" in words:
        return CannotRun(NOT_FOUND, words)
    if "permission denied" in words or "exec format error" in words or "is a directory" in words:
        return CannotRun(NOT_EXECUTABLE, words)
    return CannotRun(START_FAILED, words)

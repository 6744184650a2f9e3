"""What a node has that pods need, found out on the node itself, by a job as a pod's own user.

Runs where the pod runner runs: Python 3.6, standard library. It tells what it saw; what that means
is decided by `findings`.
"""

import contextlib
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional

from ..podrunner import gpus, process, rootfs, sandbox

QUESTION, FINDINGS = "question.json", "findings.json"
SETTINGS = (
    "AccountingStorageType",
    "AccountingStorageTRES",
    "AccountingStoreFlags",
    "JobSubmitPlugins",
    "PrivateData",
    "ProctrackType",
)
_PROGRAM_SECONDS = 20
_REGISTRY_SECONDS = 3
_MERGED = ("bin", "lib", "lib64", "sbin")


def look(directory: str) -> Dict[str, Any]:
    """Everything that is asked for in the directory's question; JSON values."""
    with open(os.path.join(directory, QUESTION), encoding="ascii") as file:
        question = json.load(file)
    place = tempfile.mkdtemp(prefix="slurmrest-doctor-")  # on the node: a shared file system may differ
    try:
        image = _empty_image(place)
        found = {
            "nonce": question.get("nonce"),
            "node": os.environ.get("SLURMD_NODENAME", platform.node()),
            "python": {"path": sys.executable, "version": platform.python_version()},
            "directory": _directory(directory),
            "apptainer": _apptainer(),
            "squashfuse": process.find_program("squashfuse_ll", rootfs._ALSO),
            "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK),
            "sandbox": _sandboxed(os.path.join(place, "sandbox"), image),
            "plain": _container(image),
            "devices": _devices(),
            "settings": _settings(),
            "registries": {name: _registry(name) for name in question.get("registries", [])},
            "cache": _cache(question.get("cache") or "/var/tmp"),
            "runner": _runner(question.get("runner")),
        }
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


def _directory(path: str) -> Dict[str, Any]:
    seen = os.stat(path)
    return {"uid": seen.st_uid, "me": os.getuid(), "mode": seen.st_mode & 0o7777}


def _apptainer() -> Dict[str, Optional[str]]:
    path = process.find_program("apptainer")
    said = _call([path, "--version"])["out"] if path else ""
    return {"path": path, "version": said.strip().replace("apptainer version ", "") or None}


def _empty_image(place: str) -> str:
    """A root file system with nothing in it, on which the node's own /usr can be mounted."""
    image = os.path.join(place, "image")
    for name in ("usr", "proc", "sys", "dev", "tmp", "etc"):
        os.makedirs(os.path.join(image, name))
    for name in _MERGED:
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), os.path.join(image, name))
        else:
            os.mkdir(os.path.join(image, name))
    return image


def _container(image: str) -> Dict[str, Any]:
    """Run one program in a container, as the runner calls Apptainer; {"code", "err"}."""
    apptainer = process.find_program("apptainer")
    if apptainer is None:
        return {"code": 127, "err": "there is no apptainer"}
    argv = [apptainer, "-s", "exec", "--containall", "--no-eval", "--no-home", "--no-mount", "bind-paths"]
    for name in ("usr", *_MERGED):
        if os.path.isdir("/" + name) and not os.path.islink("/" + name):
            argv += ["-B", "/{}:/{}:ro".format(name, name)]
    said = _call([*argv, image, os.path.realpath(shutil.which("true") or "/bin/true")])
    return {"code": said["code"], "err": said["err"]}


def _sandboxed(directory: str, image: str) -> Dict[str, Any]:
    """Run the same inside the pod runner's own namespaces."""
    reading, writing = os.pipe()

    def body() -> int:
        os.write(writing, json.dumps(_container(image)).encode("ascii")[:4000])
        return 0

    try:
        sandbox.run(directory, [], body)
    except sandbox.Unavailable as error:
        os.close(writing)
        os.close(reading)
        return {"available": False, "why": str(error), "code": None, "err": ""}
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read().decode("ascii")
    said = json.loads(text) if text else {"code": None, "err": "it ended without a word"}
    return {"available": True, "why": "", "code": said["code"], "err": said["err"]}


def _devices() -> Dict[str, List[str]]:
    control = [name for name in gpus.CONTROL_NODES if os.path.exists("/dev/" + name)]
    found = [os.path.basename(path) for path in glob.glob("/dev/nvidia[0-9]*")]
    other = [name for name in ("kfd", "dri") if os.path.exists("/dev/" + name)]
    return {"nvidia": sorted(found), "control": control, "other": other}


def _settings() -> Optional[Dict[str, str]]:
    """What slurm.conf says, as scontrol shows it to everybody; None without scontrol."""
    scontrol = process.find_program("scontrol")
    if scontrol is None:
        return None
    said = _call([scontrol, "show", "config"])
    if said["code"] != 0:
        return None
    found = {}
    for line in said["out"].splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() in SETTINGS:
            found[key.strip()] = "" if value.strip() == "(null)" else value.strip()
    return found


def _registry(host: str) -> str:
    """Empty if a registry answers there by plain http, else why not."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open("http://{}/v2/".format(host), timeout=_REGISTRY_SECONDS).close()
    except urllib.error.HTTPError as error:
        return "" if error.code == 401 else "HTTP {}".format(error.code)
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    except Exception as error:  # noqa: BLE001  whatever speaks there, it is no registry
        return "no HTTP: {}".format(type(error).__name__)
    return ""


def _cache(path: str) -> Dict[str, Any]:
    """The directory for pulled images, or the nearest one above it: free MiB and whether we may write."""
    above = path
    while not os.path.isdir(above) and above != "/":
        above = os.path.dirname(above)
    seen = os.statvfs(above)
    free = seen.f_bavail * seen.f_frsize // (1024 * 1024)
    return {"path": path, "writable": os.access(above, os.W_OK | os.X_OK), "free_mib": free}


def _runner(path: Optional[str]) -> Optional[str]:
    """The digest of an installed pod runner, or a blank and why it cannot be read; None if not asked."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read().replace(b"\n", b"")).hexdigest()
    except OSError as error:
        return " {}".format(error.strerror)


def _call(argv: List[str]) -> Dict[str, Any]:
    """Run a program; {"code", "out", "err"}, the last words of its standard error."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ}
    env.update({name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ})
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
            timeout=_PROGRAM_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": "nothing within {} s".format(_PROGRAM_SECONDS)}
    except OSError as error:
        return {"code": 127, "out": "", "err": str(error)}
    words = " ".join(done.stderr.decode("utf-8", "replace").split())
    return {"code": done.returncode, "out": done.stdout.decode("utf-8", "replace"), "err": words[-400:]}


def tell(directory: str, found: Dict[str, Any]) -> None:
    """Write the findings whole, under their name only when they are."""
    path = os.path.join(directory, FINDINGS)
    with open(path + ".new", "w", encoding="ascii") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def entry(directory: str) -> int:
    """What the job script calls; 68 if nothing can be written."""
    os.umask(0o077)
    try:
        found = look(directory)
    except Exception as error:  # noqa: BLE001  the words must come back, whatever it was
        found = {"broken": "{}: {}".format(type(error).__name__, error)}
    with contextlib.suppress(OSError):
        tell(directory, found)
        return 0
    return 68

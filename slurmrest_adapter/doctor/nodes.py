"""What a node has, judged from what the job told of it. Pure."""

from __future__ import annotations

from slurmrest_adapter.doctor import script
from slurmrest_adapter.doctor.cluster import SLURM_DEFAULT
from slurmrest_adapter.doctor.jobs import NodeJob
from slurmrest_adapter.doctor.told import Broken, Cache, Devices, Findings, NoPython, Python
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.runtimes.script import digest

SEEN, PYTHON, APPTAINER, NAMESPACES = "shared-dir-on-node", "python", "apptainer", "namespaces"
SQUASHFUSE, FUSE, GPUS, CACHE = "squashfuse", "fuse", "gpu-devices", "image-cache"
RUNNER = "pod-runner"
ON_NODE = (SEEN, PYTHON, APPTAINER, NAMESPACES, SQUASHFUSE, FUSE, GPUS, CACHE)
_LITTLE_MIB = 2048


def of_node(
    job: NodeJob, on_nodes: str, python: str, mode: str, gres: str | None, runner: str | None = None
) -> list[Check]:
    """What the node has; skips where it could not be looked at.

    Args:
        on_nodes: the shared directory's path on the nodes.
        python: ``podrunner.python``.
        mode: ``podrunner.mode``.
        gres: the node's GRES as slurmctld has them; None when it is not known.
        runner: ``podrunner.path``; without it nothing is said of an installed runner.
    """
    found = job.found
    subject = job.partition or SLURM_DEFAULT
    unseen = _unseen(job, on_nodes, subject)
    if unseen is not None:
        return [unseen, *(skip(name, "the shared directory comes first", subject) for name in ON_NODE[1:])]
    if found is None or isinstance(found, Broken):
        return [skip(name, "no job has told of a node", subject) for name in ON_NODE]
    subject = f"{subject}, {found.node or 'node'}"
    if isinstance(found, NoPython):
        return _without_python(found, on_nodes, subject)
    return [
        _shared(job, found, on_nodes, subject),
        _python(found.python, python, subject),
        _apptainer(found, subject),
        _namespaces(found, mode, subject),
        _squashfuse(found, subject),
        _fuse(found, subject),
        _gpus(found.devices, gres, subject),
        _cache(found.cache, subject),
        *([_runner(found.runner or " not told", runner, subject)] if runner else []),
    ]


def _unseen(job: NodeJob, on_nodes: str, subject: str) -> Check | None:
    code = job.info.exit_code.return_code if job.info and job.found is None else None
    node = f" on {job.info.nodes}" if job.info and job.info.nodes else ""
    if code == script.NO_SHARED:
        return fail(
            SEEN,
            f"{on_nodes} is not there{node}, or {job.owner.user} cannot get to it",
            "mount the shared file system on the nodes; if its path differs there, set shared_dir_on_nodes",
            subject,
        )
    if code == script.NO_DIRECTORY:
        return fail(
            SEEN,
            f"{on_nodes}{node} does not show {job.owner.user} the directory that this host made: "
            "it is another file system, or the user's uid differs there",
            "mount the same file system on this host and the nodes; compare the user's id with identity.map",
            subject,
        )
    if code == script.NOT_WRITABLE:
        return fail(
            SEEN,
            f"{job.owner.user} cannot write into its directory below {on_nodes}{node}",
            "mount it read-write on the nodes; quotas and free space matter too",
            subject,
        )
    return None


def _without_python(found: NoPython, on_nodes: str, subject: str) -> list[Check]:
    seen = (
        f"only Python {found.version}"
        if found.version
        else "no python3 on PATH, nor /usr/libexec/platform-python"
    )
    checks = [
        ok(SEEN, f"{on_nodes} is the same directory there", subject),
        fail(
            PYTHON,
            f"{seen}: the pod runner cannot start",
            "install Python 3.6 or newer on the nodes, or set podrunner.python to its path there",
            subject,
        ),
    ]
    if not found.apptainer_there:
        checks.append(_no_apptainer(subject))
    told = {check.name for check in checks}
    checks += [skip(name, "needs Python to be looked at", subject) for name in ON_NODE if name not in told]
    return checks


def _shared(job: NodeJob, found: Findings, on_nodes: str, subject: str) -> Check:
    seen = found.directory
    if found.nonce != job.nonce:
        return fail(
            SEEN,
            f"{on_nodes} shows another content than this host wrote",
            "mount the same file system on this host and the nodes",
            subject,
        )
    if seen.uid != seen.me:
        return fail(
            SEEN,
            f"the job runs as uid {seen.me}, but its directory belongs to uid {seen.uid} there",
            "give the uid that the nodes know in identity.map; check the file system's id mapping",
            subject,
        )
    return ok(
        SEEN, f"{on_nodes} is the same directory there; {job.owner.user}'s is closed to others", subject
    )


def _python(found: Python, wanted: str, subject: str) -> Check:
    seen = f"Python {found.version}, {found.path}"
    if wanted.startswith("/") and found.path != wanted:
        return warn(
            PYTHON,
            f"{wanted} is not there; {seen} is used instead",
            "correct podrunner.python",
            subject,
        )
    return ok(PYTHON, seen, subject)


def _apptainer(found: Findings, subject: str) -> Check:
    apptainer, plain, boxed = found.apptainer, found.plain, found.sandbox
    if apptainer.path is None:
        return _no_apptainer(subject)
    seen = f"Apptainer {apptainer.version or 'of unknown version'}, {apptainer.path}"
    if 0 not in (plain.code, boxed.code):
        return fail(
            APPTAINER,
            f"{seen} runs no container: {plain.err or boxed.err or 'no words'}",
            "apptainer exec as an ordinary user says more; it needs user namespaces or its setuid part",
            subject,
        )
    return ok(APPTAINER, f"{seen}; it runs containers", subject)


def _no_apptainer(subject: str) -> Check:
    return fail(
        APPTAINER, "there is no apptainer on the job's PATH", "install Apptainer on every node of it", subject
    )


def _namespaces(found: Findings, mode: str, subject: str) -> Check:
    boxed = found.sandbox
    if found.apptainer.path is None and boxed.available:
        return ok(NAMESPACES, "pods get namespaces of their own", subject)
    if boxed.available and boxed.code == 0:
        plainly = ", though podrunner.mode plain does without" if mode == "plain" else ""
        return ok(NAMESPACES, f"pods get namespaces of their own{plainly}", subject)
    why = boxed.why or f"Apptainer fails in them: {boxed.err}"
    advice = "allow user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone"
    if mode == "sandbox":
        return fail(
            NAMESPACES, f"podrunner.mode is sandbox, which this node cannot give: {why}", advice, subject
        )
    if mode == "plain":
        return ok(NAMESPACES, f"none ({why}), and podrunner.mode plain does without", subject)
    return warn(NAMESPACES, f"pods run plain, without namespaces of their own: {why}", advice, subject)


def _squashfuse(found: Findings, subject: str) -> Check:
    if found.squashfuse:
        return ok(SQUASHFUSE, found.squashfuse, subject)
    return warn(
        SQUASHFUSE,
        "there is no squashfuse_ll: images are unpacked before they start, which takes time and space",
        "install squashfuse (or Apptainer's own) on the nodes",
        subject,
    )


def _fuse(found: Findings, subject: str) -> Check:
    if found.fuse:
        return ok(FUSE, "/dev/fuse can be used", subject)
    return warn(
        FUSE,
        "/dev/fuse cannot be used: images are unpacked instead of mounted",
        "modprobe fuse; chmod 666 /dev/fuse",
        subject,
    )


def _gpus(devices: Devices, gres: str | None, subject: str) -> Check:
    """The job asked for no GPU, so only the files are looked at."""
    if not gres:
        return skip(GPUS, "Slurm has no GPUs on this node", subject)
    if not devices.nvidia:
        if devices.other:
            return ok(GPUS, f"/dev/{', /dev/'.join(devices.other)} (not NVIDIA's)", subject)
        return fail(
            GPUS,
            f"Slurm has {gres} on this node, but there is no /dev/nvidia0 and no /dev/kfd",
            "load the driver (nvidia-smi; nvidia-modprobe -c 0 -u)",
            subject,
        )
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in devices.control]
    if missing:
        return fail(
            GPUS,
            f"{len(devices.nvidia)} GPUs, but no /dev/{', /dev/'.join(missing)}: CUDA will not start",
            "nvidia-modprobe -c 0 -u at boot, or nvidia-persistenced",
            subject,
        )
    return ok(GPUS, f"{', '.join(devices.nvidia)}, {', '.join(devices.control)}", subject)


def _cache(found: Cache, subject: str) -> Check:
    seen = f"{found.path}, {found.free_mib} MiB free"
    if not found.writable:
        return fail(
            CACHE,
            f"{seen}: the user cannot write there",
            "set images.cache to a place users may write",
            subject,
        )
    if found.free_mib < _LITTLE_MIB:
        return warn(CACHE, seen, "make room, or set images.cache to a larger disk", subject)
    return ok(CACHE, seen, subject)


def _runner(seen: str, path: str, subject: str) -> Check:
    how = f"install it on all nodes: slurmrest-adapter podrunner > {path}"
    if seen.startswith(" "):
        return fail(RUNNER, f"{path} cannot be read:{seen}", how, subject)
    if seen != digest():
        return fail(RUNNER, f"{path} is another release's: no pod would start", how, subject)
    return ok(RUNNER, f"{path} is this release's", subject)

"""What a node job's story and findings mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurmrest_adapter.doctor import script
from slurmrest_adapter.doctor.cluster import SLURM_DEFAULT
from slurmrest_adapter.doctor.jobs import NodeJob
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.domain.errors import Rejected

JOB, PLUGINS, SEEN, PYTHON, APPTAINER = "job", "submit-plugins", "shared-dir-on-node", "python", "apptainer"
NAMESPACES, SQUASHFUSE, FUSE, GPUS = "namespaces", "squashfuse", "fuse", "gpu-devices"
REGISTRY, CACHE, FLAGS = "registry", "image-cache", "accounting-flags"
ON_NODE = (SEEN, PYTHON, APPTAINER, NAMESPACES, SQUASHFUSE, FUSE, GPUS, CACHE)
_LITTLE_MIB = 2048
# Fields that carry meaning for us; a site that changes one of them should know that we saw it.
_READ_BACK = ("name", "user", "account", "partition", "comment", "cpus", "memory_mib", "time_limit_minutes")


def of_job(job: NodeJob, timeout: float) -> list[Check]:
    """The job itself: submitted, read back, ended."""
    subject = job.partition or SLURM_DEFAULT
    if job.ref is None or job.spec is None:
        return [_not_submitted(job, subject)]
    checks = [_read_back(job, subject)]
    state = "+".join(job.info.states) if job.info else "unknown"
    what = f"job {job.ref.job_id} as {job.owner.user}"
    if not job.over:
        reason = job.info.reason if job.info else ""
        checks.append(
            warn(
                JOB,
                f"{what} is {state} ({job.error or reason or 'no reason given'}) after {timeout:g} s, "
                "and was cancelled: the node was not looked at",
                "try again with a longer --timeout, when the partition has room",
                subject,
            )
        )
    elif job.error is not None:
        checks.append(
            fail(JOB, f"{what} could not be followed: {job.error}", "look into slurmctld's log", subject)
        )
    elif job.found is None or "broken" in job.found:
        checks.append(_said_nothing(job, what, state, subject))
    else:
        checks.append(ok(JOB, f"{what} ran on {job.found.get('node') or 'a node'}", subject))
    return checks


def _not_submitted(job: NodeJob, subject: str) -> Check:
    advice = "look into slurmrestd's and slurmctld's logs"
    if isinstance(job.error, Rejected):
        advice = (
            f"see that {job.owner.user} may submit there (sacctmgr show assoc user={job.owner.user}; the "
            "partition's AllowAccounts and AllowQos), and correct identity.map or defaults"
        )
    return fail(JOB, f"no job as {job.owner.user}: {job.error}", advice, subject)


def _said_nothing(job: NodeJob, what: str, state: str, subject: str) -> Check:
    code = job.info.exit_code if job.info else None
    ended = f"{what} ended {state}{f', {code.words()}' if code else ''}"
    if job.untrusted:
        return fail(
            JOB,
            f"{ended}; its findings are not its own: {job.untrusted}",
            "see who writes in shared_dir",
            subject,
        )
    if job.found is not None:
        return fail(
            JOB, f"{ended}; it broke: {job.found['broken']}", "run doctor again, and report this", subject
        )
    return_code = code.return_code if code else None
    words = {
        script.NO_SHARED: "the shared directory is not there on the node",
        script.NO_DIRECTORY: "the node does not show what this host wrote",
        script.NOT_WRITABLE: "the user cannot write on the node",
    }.get(return_code or 0, "it told nothing")
    where = f" on {job.info.nodes}" if job.info and job.info.nodes else ""
    advice = "scontrol show job, and slurmd's log on that node, say why"
    if return_code in (script.NO_SHARED, script.NO_DIRECTORY, script.NOT_WRITABLE):
        advice = "see the check shared-dir-on-node"
    return fail(JOB, f"{ended}{where}: {words}", advice, subject)


def _read_back(job: NodeJob, subject: str) -> Check:
    """What the site made of the job: submit plugins, defaults, limits."""
    assert job.spec is not None
    assert job.ref is not None
    said = [*job.ref.warnings, *([job.ref.message] if job.ref.message else [])]
    if job.first is None:
        return skip(PLUGINS, "the job could not be read back", subject)
    changed = []
    for name in _READ_BACK:
        asked, got = getattr(job.spec, name), getattr(job.first, name)
        if asked not in (None, "") and got != asked:
            changed.append(f"{name} {asked} → {got}")
    if changed or said:
        return warn(
            PLUGINS,
            "; ".join(
                ([f"the site changed {', '.join(changed)}"] if changed else [])
                + [f"Slurm says: {words}" for words in said]
            ),
            "pods get the same: see that this is meant (JobSubmitPlugins in slurm.conf)",
            subject,
        )
    return ok(PLUGINS, "the job is as it was submitted", subject)


def of_node(job: NodeJob, on_nodes: str, python: str, mode: str, gres: str | None) -> list[Check]:
    """What the node has; skips where it could not be looked at.

    Args:
        on_nodes: the shared directory's path on the nodes.
        python: ``podrunner.python``.
        mode: ``podrunner.mode``.
        gres: the node's GRES as slurmctld has them; None when it is not known.
    """
    found = job.found
    subject = job.partition or SLURM_DEFAULT
    unseen = _unseen(job, on_nodes, subject)
    if unseen is not None:
        return [unseen, *(skip(name, "the shared directory comes first", subject) for name in ON_NODE[1:])]
    if found is None or "broken" in found:
        return [skip(name, "no job has told of a node", subject) for name in ON_NODE]
    subject = f"{subject}, {found.get('node') or 'node'}"
    if found.get("python") is None:
        return _without_python(found, on_nodes, subject)
    return [
        _shared(job, found, on_nodes, subject),
        _python(found["python"], python, subject),
        _apptainer(found, subject),
        _namespaces(found, mode, subject),
        _squashfuse(found, subject),
        _fuse(found, subject),
        _gpus(found["devices"], gres, subject),
        _cache(found["cache"], subject),
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


def _without_python(found: Mapping[str, Any], on_nodes: str, subject: str) -> list[Check]:
    version = found.get("version")
    seen = f"only Python {version}" if version else "no python3 on PATH, nor /usr/libexec/platform-python"
    checks = [
        ok(SEEN, f"{on_nodes} is the same directory there", subject),
        fail(
            PYTHON,
            f"{seen}: the pod runner cannot start",
            "install Python 3.6 or newer on the nodes, or set podrunner.python to its path there",
            subject,
        ),
    ]
    if not found.get("apptainer_there"):
        checks.append(_no_apptainer(subject))
    told = {check.name for check in checks}
    checks += [skip(name, "needs Python to be looked at", subject) for name in ON_NODE if name not in told]
    return checks


def _shared(job: NodeJob, found: Mapping[str, Any], on_nodes: str, subject: str) -> Check:
    seen = found["directory"]
    if found["nonce"] != job.nonce:
        return fail(
            SEEN,
            f"{on_nodes} shows another content than this host wrote",
            "mount the same file system on this host and the nodes",
            subject,
        )
    if seen["uid"] != seen["me"]:
        return fail(
            SEEN,
            f"the job runs as uid {seen['me']}, but its directory belongs to uid {seen['uid']} there",
            "give the uid that the nodes know in identity.map; check the file system's id mapping",
            subject,
        )
    return ok(
        SEEN, f"{on_nodes} is the same directory there; {job.owner.user}'s is closed to others", subject
    )


def _python(found: Mapping[str, str], wanted: str, subject: str) -> Check:
    seen = f"Python {found['version']}, {found['path']}"
    if wanted.startswith("/") and found["path"] != wanted:
        return warn(
            PYTHON,
            f"{wanted} is not there; {seen} is used instead",
            "correct podrunner.python",
            subject,
        )
    return ok(PYTHON, seen, subject)


def _apptainer(found: Mapping[str, Any], subject: str) -> Check:
    apptainer, plain, boxed = found["apptainer"], found["plain"], found["sandbox"]
    if apptainer["path"] is None:
        return _no_apptainer(subject)
    seen = f"Apptainer {apptainer['version'] or 'of unknown version'}, {apptainer['path']}"
    if 0 not in (plain["code"], boxed["code"]):
        return fail(
            APPTAINER,
            f"{seen} runs no container: {plain['err'] or boxed['err'] or 'no words'}",
            "apptainer exec as an ordinary user says more; it needs user namespaces or its setuid part",
            subject,
        )
    return ok(APPTAINER, f"{seen}; it runs containers", subject)


def _no_apptainer(subject: str) -> Check:
    return fail(
        APPTAINER, "there is no apptainer on the job's PATH", "install Apptainer on every node of it", subject
    )


def _namespaces(found: Mapping[str, Any], mode: str, subject: str) -> Check:
    boxed = found["sandbox"]
    if found["apptainer"]["path"] is None and boxed["available"]:
        return ok(NAMESPACES, "pods get namespaces of their own", subject)
    if boxed["available"] and boxed["code"] == 0:
        plainly = ", though podrunner.mode plain does without" if mode == "plain" else ""
        return ok(NAMESPACES, f"pods get namespaces of their own{plainly}", subject)
    why = boxed["why"] or f"Apptainer fails in them: {boxed['err']}"
    advice = "allow user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone"
    if mode == "sandbox":
        return fail(
            NAMESPACES, f"podrunner.mode is sandbox, which this node cannot give: {why}", advice, subject
        )
    if mode == "plain":
        return ok(NAMESPACES, f"none ({why}), and podrunner.mode plain does without", subject)
    return warn(NAMESPACES, f"pods run plain, without namespaces of their own: {why}", advice, subject)


def _squashfuse(found: Mapping[str, Any], subject: str) -> Check:
    if found["squashfuse"]:
        return ok(SQUASHFUSE, found["squashfuse"], subject)
    return warn(
        SQUASHFUSE,
        "there is no squashfuse_ll: images are unpacked before they start, which takes time and space",
        "install squashfuse (or Apptainer's own) on the nodes",
        subject,
    )


def _fuse(found: Mapping[str, Any], subject: str) -> Check:
    if found["fuse"]:
        return ok(FUSE, "/dev/fuse can be used", subject)
    return warn(
        FUSE,
        "/dev/fuse cannot be used: images are unpacked instead of mounted",
        "modprobe fuse; chmod 666 /dev/fuse",
        subject,
    )


def _gpus(devices: Mapping[str, Sequence[str]], gres: str | None, subject: str) -> Check:
    """The job asked for no GPU, so only the files are looked at."""
    if not gres:
        return skip(GPUS, "Slurm has no GPUs on this node", subject)
    if not devices["nvidia"]:
        if devices["other"]:
            return ok(GPUS, f"/dev/{', /dev/'.join(devices['other'])} (not NVIDIA's)", subject)
        return fail(
            GPUS,
            f"Slurm has {gres} on this node, but there is no /dev/nvidia0 and no /dev/kfd",
            "load the driver (nvidia-smi; nvidia-modprobe -c 0 -u)",
            subject,
        )
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in devices["control"]]
    if missing:
        return fail(
            GPUS,
            f"{len(devices['nvidia'])} GPUs, but no /dev/{', /dev/'.join(missing)}: CUDA will not start",
            "nvidia-modprobe -c 0 -u at boot, or nvidia-persistenced",
            subject,
        )
    return ok(GPUS, f"{', '.join(devices['nvidia'])}, {', '.join(devices['control'])}", subject)


def _cache(found: Mapping[str, Any], subject: str) -> Check:
    seen = f"{found['path']}, {found['free_mib']} MiB free"
    if not found["writable"]:
        return fail(
            CACHE,
            f"{seen}: the user cannot write there",
            "set images.cache to a place users may write",
            subject,
        )
    if found["free_mib"] < _LITTLE_MIB:
        return warn(CACHE, seen, "make room, or set images.cache to a larger disk", subject)
    return ok(CACHE, seen, subject)


def of_site(jobs: Sequence[NodeJob], why_not: str, accounting: bool) -> list[Check]:
    """What any node can tell of the whole site: what slurmdbd keeps of a job, whether registries answer.

    Args:
        why_not: why no node was asked; used where none told.
        accounting: slurmdbd answers.
    """
    told = [job.found for job in jobs if job.found is not None and job.found.get("python") is not None]
    checks = [_flags(told, why_not, accounting)]
    for name in dict.fromkeys(name for found in told for name in found.get("registries", {})):
        bad = {found["node"]: why for found in told if (why := found["registries"].get(name))}
        if bad:
            nodes = "; ".join(f"{node}: {why}" for node, why in bad.items())
            checks.append(
                warn(
                    REGISTRY,
                    f"no registry answers by plain http ({nodes})",
                    "correct images.insecure_registries, or open the way from the nodes",
                    name,
                )
            )
        else:
            checks.append(ok(REGISTRY, f"answers {', '.join(found['node'] for found in told)}", name))
    return checks


def _flags(told: Sequence[Mapping[str, Any]], why_not: str, accounting: bool) -> Check:
    if not accounting:
        return skip(FLAGS, "slurmdbd does not answer")
    settings = next((found["settings"] for found in told if found.get("settings")), None)
    if settings is None:
        why = why_not or "REST does not tell, and no node had an scontrol that does"
        return skip(FLAGS, f"{why}; scontrol show config says AccountingStoreFlags")
    flags = settings.get("AccountingStoreFlags", "").lower()
    kept = [flag.strip() for flag in flags.split(",")]
    if "job_comment" not in kept:
        return warn(
            FLAGS,
            f"AccountingStoreFlags={flags or '(none)'}: slurmdbd forgets which pod a job was",
            "add job_comment to AccountingStoreFlags in slurm.conf",
        )
    return ok(FLAGS, f"AccountingStoreFlags={flags}")

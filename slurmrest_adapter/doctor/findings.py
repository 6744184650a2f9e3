"""What a node job's story means, and what nodes told of the site. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slurmrest_adapter.doctor import script
from slurmrest_adapter.doctor.cluster import SLURM_DEFAULT
from slurmrest_adapter.doctor.jobs import NodeJob
from slurmrest_adapter.doctor.told import Broken, Findings
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.domain.errors import Rejected

JOB, PLUGINS, REGISTRY, FLAGS = "job", "submit-plugins", "registry", "accounting-flags"
DELIVERY = "plan-delivery"
# CPUs are not among them: Slurm rounds them up to whole cores by itself.
_READ_BACK = ("name", "user", "account", "partition", "comment", "memory_mib", "time_limit_minutes")


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
    elif job.found is None or isinstance(job.found, Broken):
        checks.append(_said_nothing(job, what, state, subject))
    else:
        checks.append(ok(JOB, f"{what} ran on {job.found.node or 'a node'}", subject))
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
    if isinstance(job.found, Broken):
        return fail(
            JOB, f"{ended}; it broke: {job.found.broken}", "run doctor again, and report this", subject
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


def of_site(jobs: Sequence[NodeJob], why_not: str, accounting: bool) -> list[Check]:
    """What any node can tell of the whole site: what slurmdbd keeps of a job, whether registries answer.

    Args:
        why_not: why no node was asked; used where none told.
        accounting: slurmdbd answers.
    """
    told = [job.found for job in jobs if isinstance(job.found, Findings)]
    checks = [_flags(told, why_not, accounting)]
    for name in dict.fromkeys(name for found in told for name in found.registries):
        bad = {found.node: why for found in told if (why := found.registries.get(name))}
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
            checks.append(ok(REGISTRY, f"answers {', '.join(found.node for found in told)}", name))
    return checks


def of_delivery(jobs: Sequence[NodeJob], why_not: str) -> Check:
    """Of a site that sends plans in jobs' environments: whether Slurm's database keeps them.

    Args:
        why_not: why no node was asked; used where none told.
    """
    told = [job.found for job in jobs if isinstance(job.found, Findings)]
    settings = next((found.settings for found in told if found.settings), None)
    meaning = "every pod's plan, its secrets too, and shows it to the job's user and to operators"
    while_known = "slurmctld keeps plans in StateSaveLocation until it forgets the job"
    advice = "take job_env out of AccountingStoreFlags in slurm.conf, or set plan.delivery: shared"
    if settings is None:
        why = why_not or "REST does not tell, and no node had an scontrol that does"
        return warn(
            DELIVERY,
            f"plan.delivery is environment; with AccountingStoreFlags=job_env slurmdbd keeps {meaning} "
            f"(sacct --env-vars) for as long as it keeps jobs. Whether it does is not known: {why}",
            f"see scontrol show config; {advice}",
        )
    flags = [flag.strip() for flag in settings.get("AccountingStoreFlags", "").lower().split(",")]
    if "slurmdbd" not in settings.get("AccountingStorageType", "").lower():
        return ok(DELIVERY, f"plan.delivery is environment; Slurm has no database, {while_known}")
    if "job_env" in flags:
        return warn(
            DELIVERY,
            f"plan.delivery is environment and AccountingStoreFlags has job_env: slurmdbd keeps {meaning} "
            "(sacct --env-vars), for as long as it keeps jobs",
            advice,
        )
    return ok(DELIVERY, f"plan.delivery is environment; slurmdbd keeps no job_env, {while_known}")


def _flags(told: Sequence[Findings], why_not: str, accounting: bool) -> Check:
    if not accounting:
        return skip(FLAGS, "slurmdbd does not answer")
    settings = next((found.settings for found in told if found.settings), None)
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

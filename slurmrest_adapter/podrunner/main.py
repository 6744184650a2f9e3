"""From the batch process to the pod: claim it, read its plan, choose the surroundings, run it."""

import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import carried, first, gpus, names, plan, process, sandbox, status, volumes
from .light import suppress
from .supervisor import Supervisor

CANNOT = 125  # the runner itself could not do its work
_SANDBOX = "sandbox"


def main() -> int:
    """Run the pod of the directory in SRA_POD_DIR; the exit code of the batch process."""
    os.umask(0o077)
    broken = ""
    try:
        text = carried.take()  # before anything that could inherit it is started
    except (OSError, ValueError) as error:
        text, broken = b"", str(error)
    pod = os.environ.get("SRA_POD_DIR", "")
    if not pod.startswith("/") or not os.path.isdir(pod):
        print("SRA_POD_DIR does not name a directory on this node", flush=True)
        return CANNOT
    job = job_of(os.environ)
    holder = status.claim(pod, job["id"])
    if holder is not None:
        print("job {} has this pod already: nothing to do for job {}".format(holder, job["id"]), flush=True)
        return 0
    record = status.Status(pod, "", job, "{}.{}.{}".format(*sys.version_info))
    try:
        if broken:
            raise plan.PlanError(broken)
        pod_plan = plan.load(os.path.join(pod, "plan.json")) if text is None else plan.decode(text)
    except plan.PlanError as error:
        return _refuse(record, "plan: {}".format(error))
    record.uid = pod_plan.uid
    record.containers = _waiting(pod_plan, job, record)
    record.write()
    return _run(pod_plan, record, pod, _deadline(pod_plan, os.environ, time.time()))


def _run(pod_plan: plan.Plan, record: status.Status, pod: str, deadline: Optional[float]) -> int:
    control, relay = os.pipe()
    os.set_blocking(relay, False)

    def relayed(number: int, frame: Any) -> None:
        with suppress(OSError):  # the pod has just ended, or was told often enough
            os.write(relay, b"T")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, relayed)
    began = time.monotonic()
    allotment = gpus.allotted(os.environ)

    local = volumes.Local(pod_plan, os.environ)

    def body(directory: Optional[str]) -> int:
        record.mode = "plain" if directory is None else "sandbox"
        if directory is None:
            process.worker(lambda: first.listen(relay))
        try:
            return pod_of(directory)
        finally:
            if directory is not None:
                sandbox.leave(directory)
                _no_mount_point(directory)
            clear()

    def clear() -> None:
        local.remove()
        if pod_plan.once:
            with suppress(OSError):
                os.unlink(os.path.join(pod, "plan.json"))

    def pod_of(directory: Optional[str]) -> int:
        try:
            directories = volumes.make(pod_plan, directory, local)
            local.everywhere = names.write(pod_plan, directory or pod, directory is not None)
        except (OSError, volumes.VolumeError) as error:
            return _refuse(record, "volumes: {}".format(error))
        left = None if deadline is None else deadline - (time.monotonic() - began)
        supervisor = Supervisor(pod_plan, record, pod, directory, allotment, directories, local, control)
        return supervisor.run(left)

    try:
        local.tidy()
        local.disk()
        return _surround(pod_plan, record, pod, allotment, body, relay)
    except volumes.VolumeError as error:
        return _refuse(record, "volumes: {}".format(error))
    finally:
        clear()  # of a pod that never began; in a sandbox this process is another program by now


def _surround(
    pod_plan: plan.Plan,
    record: status.Status,
    pod: str,
    allotment: gpus.Allotment,
    body: Callable[[Optional[str]], int],
    relay: int,
) -> int:
    """Run the pod in a sandbox, or without where the plan allows it."""
    if pod_plan.mode != "plain":
        # Its own, not the pod's: a second copy of the job, or the first run of a requeued one, may be
        # alive beside us, and removing a mount point takes it away from whoever has it mounted.
        own = "{}.{}".format(record.job["node"], os.getpid())
        directory = os.path.join(pod, _SANDBOX, own)
        try:
            devices = allotment.files + allotment.common
            return sandbox.run(directory, devices, lambda: body(directory), relay)
        except sandbox.Unavailable as error:
            _no_mount_point(directory)
            if pod_plan.mode == "sandbox":
                return _refuse(record, "no sandbox on this node: {}".format(error))
            print("plain mode, because there is no sandbox: {}".format(error), flush=True)
    return body(None)


def _no_mount_point(directory: str) -> None:
    for path in (directory, os.path.dirname(directory)):
        with suppress(OSError):
            os.rmdir(path)  # what was in it was seen inside only


def job_of(environ: Mapping[str, str]) -> Dict[str, Any]:
    """The job as the record names it, from what Slurm sets for a batch step."""
    restart = environ.get("SLURM_RESTART_COUNT", "0")
    return {
        "id": environ.get("SLURM_JOB_ID", "0"),
        "node": environ.get("SLURMD_NODENAME", os.uname().nodename),
        "restart": int(restart) if restart.isdigit() else 0,
        "gpus": gpus.allotted(environ).indices,
    }


def _deadline(pod_plan: plan.Plan, environ: Mapping[str, str], now: float) -> Optional[float]:
    """Seconds from now to the deadline, which counts from the start of the job."""
    if pod_plan.deadline_seconds is None:
        return None
    started = environ.get("SLURM_JOB_START_TIME", "")
    # A clock that is wrong on one side must not end the pod at once or give it more time.
    gone = min(max(0.0, now - int(started)), pod_plan.deadline_seconds) if started.isdigit() else 0.0
    return pod_plan.deadline_seconds - gone


def _waiting(pod_plan: plan.Plan, job: Dict[str, Any], record: status.Status) -> List[Dict[str, Any]]:
    some_init = any(container.init for container in pod_plan.containers)
    records = []
    for container in pod_plan.containers:
        reason = "PodInitializing" if some_init else "ContainerCreating"
        indices = [job["gpus"][position] for position in container.gpus if position < len(job["gpus"])]
        records.append(
            status.waiting(
                container.name,
                container.init,
                container.image,
                reason,
                record.before(container.name),
                indices,
            )
        )
    return records


def _refuse(record: status.Status, message: str) -> int:
    print(message, flush=True)
    record.phase = "ended"
    record.end = {"exit_code": CANNOT, "reason": None, "message": message}
    record.write()
    return CANNOT


def entry() -> None:
    """What the job script calls."""
    try:
        code = main()
    except Exception:  # noqa: BLE001  the words must reach runner.log, and the job must not look well
        import traceback  # large, and seldom needed

        traceback.print_exc()
        code = CANNOT
    sys.exit(code)

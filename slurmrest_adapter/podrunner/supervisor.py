"""The life of a pod: init containers in order, then all others at once, then the end.

Sidecars are init containers that run on: the next container starts when they have started, and they
end last, in reverse order. They decide neither when the pod ends nor its exit code, which is that of
the first other container, in the order of the spec, that failed. The pod's record is written at
every change.
"""

import os
import signal
import time
from typing import Dict, List, Optional

from . import slurmconf, usage
from .backoff import Idle
from .gpus import Allotment
from .life import Life
from .loop import Loop
from .plan import Plan
from .runner import Context, Owner
from .status import Status
from .volumes import Local

_FLUSH_SECONDS = 1.0
_TELLING_SECONDS = 2.0  # for the record and for tidying up, before Slurm's KILL
_FIRST_SAMPLE_SECONDS, _SAMPLE_SECONDS = 1.0, 15.0
_SAMPLE_SHARE = 0.002  # of a processor at most
# Reasons for which a pod has failed, whatever its containers say.
_FAILED = ("DeadlineExceeded", "GPUsIdle")


class Supervisor(Owner):
    """Runs one pod.

    `pod` is its directory, `sandbox` the directory inside its namespaces, None without them;
    `directories` has the pod's volumes by name, `local` is where they lie outside the sandbox. On the
    descriptor `control` a "T" asks for the pod's end, an "S" tells that Slurm's own TERM came to every
    process of the job; its closing means that the batch process is gone.
    """

    def __init__(
        self,
        plan: Plan,
        status: Status,
        pod: str,
        sandbox: Optional[str],
        allotment: Allotment,
        directories: Dict[str, str],
        local: Local,
        control: int,
    ) -> None:
        self._plan = plan
        self._status = status
        # In a sandbox this is not the batch process, to which alone TERM comes from who deletes the pod.
        self._loop = Loop(self._ask if sandbox is None else self._cut, self._child_ended)
        self._context = Context(plan, pod, sandbox, allotment, directories, local, self._loop, self)
        self._lives = [
            Life(self._context, container, record)
            for container, record in zip(plan.containers, status.containers)  # noqa: B905  3.6
        ]
        self._sidecars = [life for life in self._lives if life.container.sidecar]
        self._others = [life for life in self._lives if not life.container.sidecar]
        self._ending = False
        self._reason: Optional[str] = None
        self._message = ""
        self._idle = Idle(plan.max_idle if allotment.indices else None)
        self._watched = False
        self._loop.read(control, self._controlled)

    def run(self, deadline: Optional[float]) -> int:
        """Run the pod to its end and answer its exit code; `deadline` is in seconds from now."""
        self._status.phase = "running"
        self._status.write()
        if deadline is not None:
            self._loop.after(max(0.0, deadline), lambda: self.stop("DeadlineExceeded"))
        self._loop.after(_FLUSH_SECONDS, self._flush)
        self._loop.after(_FIRST_SAMPLE_SECONDS, self._sample)
        self._advance()
        self._loop.run()
        code = self._exit_code()
        self._status.phase = "ended"
        self._status.end = {"exit_code": code, "reason": self._reason, "message": self._message}
        self._status.write()
        return code

    def changed(self) -> None:
        """A container's record has changed: write it, and start what is due now."""
        self._status.write()
        self._advance()

    def worked(self) -> None:
        """A container did its work, or ran for long: the pod is not idle."""
        self._idle.worked()

    def stop(self, reason: str, message: str = "") -> None:
        """TERM to all containers, sidecars last; after the grace period KILL; the first call counts."""
        if self._reason is not None:
            return
        self._reason, self._message = reason, message
        print("ending the pod: {} {}".format(reason, message).rstrip(), flush=True)
        self._end()

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._loop.after(self._plan.grace_seconds, self._kill)
            for life in self._lives:
                life.retire()
        for life in self._others:
            life.terminate()
        self._advance()

    def _advance(self) -> None:
        if not self._ending:
            for life in self._due():
                # A container that fails at once comes back here, and may have begun the others.
                if life.fresh and not self._ending:
                    life.begin()
            if not self._ending and self._complete():
                self._end()
            self._watch_idle()
        elif not any(life.live for life in self._others):
            last = [life for life in self._sidecars if life.live][-1:]
            for life in last:
                life.terminate()
            if not last:
                self._loop.stop()

    def _due(self) -> List[Life]:
        for life in self._lives:
            if life.container.init:
                if life.fresh:
                    return [life]
                if not (life.started if life.container.sidecar else life.code == 0):
                    return []
        return [life for life in self._lives if life.fresh]

    def _complete(self) -> bool:
        """Whether nothing is left that could still decide how the pod ends."""
        # A sidecar has a code before the end only if its image cannot be had and nobody tries again.
        deciding = self._deciding()
        failed = any(life.code for life in deciding if life.container.init)
        return failed or all(life.code is not None for life in self._others)

    def _deciding(self) -> List[Life]:
        """The containers by which the pod is judged; a sidecar only as long as it has never run."""
        return [life for life in self._lives if not (life.container.sidecar and life.started)]

    def _watch_idle(self) -> None:
        works = any(life.active for life in self._others)
        works = works or any(life.active and not life.started for life in self._sidecars)
        left = self._idle.update(not works and not self._ending, time.monotonic())
        if left == 0.0:
            self.stop(
                "GPUsIdle",
                "held {} GPUs and only waited to start containers again, for {:g} s".format(
                    len(self._context.allotment.indices), self._plan.max_idle or 0.0
                ),
            )
        elif left is not None and not self._watched:
            # One is enough: work can only move the limit away, and then it looks again.
            self._watched = True
            self._loop.after(left, self._look_again)

    def _look_again(self) -> None:
        self._watched = False
        self._watch_idle()

    def _child_ended(self, pid: int, status: int, seconds: float) -> None:
        runner = self._context.children.pop(pid, None)
        if runner is not None:
            runner.child_ended(pid, status, seconds)

    def _kill(self) -> None:
        for life in self._lives:
            life.kill()

    def _ask(self) -> None:
        self.stop("Terminated")

    def _cut(self) -> None:
        """Slurm ends the job, and kills all that is left of it soon; then nobody could tell how it ended."""
        self.stop("Terminated")
        left = slurmconf.kill_wait(os.environ)
        self._loop.after(left - min(_TELLING_SECONDS, left / 4), self._kill)

    def _controlled(self, data: bytes) -> None:
        if not data and self._context.sandbox is not None:
            os._exit(128 + signal.SIGKILL)  # nothing of the pod may outlive its batch process
        if b"S" in data:
            self._cut()
        elif b"T" in data:
            self._ask()

    def _flush(self) -> None:
        for life in self._lives:
            life.flush()
        self._loop.after(_FLUSH_SECONDS, self._flush)

    def _sample(self) -> None:
        begun = time.process_time()
        news = [
            self._context.children[pid].sampled(*used)
            for pid, used in usage.take(self._context.children).items()
        ]
        if any(news):
            self._status.write()
        cost = time.process_time() - begun
        self._loop.after(max(_SAMPLE_SECONDS, cost / _SAMPLE_SHARE), self._sample)

    def _exit_code(self) -> int:
        for life in self._deciding():
            if life.code:
                return life.code
        if self._reason in _FAILED:
            return 128 + signal.SIGKILL
        if any(life.code is None for life in self._others):
            return 128 + signal.SIGTERM
        return 0

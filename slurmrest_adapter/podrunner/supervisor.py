"""The life of a pod's containers: init containers in order, then all others at once, then the end.

The pod's record is written at every change. The exit code is that of the first container, in the
order of the spec, that failed.
"""

import os
import signal
from typing import Dict, List, Optional

from .gpus import Allotment
from .loop import Loop
from .plan import Plan
from .runner import Context, Owner, Runner
from .status import Status
from .volumes import Local

_FLUSH_SECONDS = 1.0


class Supervisor(Owner):
    """Runs one pod.

    `pod` is its directory, `sandbox` the directory inside its namespaces, None without them;
    `directories` has the pod's volumes by name, `local` is where they lie outside the sandbox. On the
    descriptor `control` a "T" asks for the pod's end; its closing means that the batch process is gone.
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
        self._loop = Loop(lambda: self.stop("Terminated"), self._child_ended)
        self._context = Context(plan, pod, sandbox, allotment, directories, local, self._loop, self)
        self._runners = [
            Runner(self._context, container, record)
            for container, record in zip(plan.containers, status.containers)  # noqa: B905  3.6
        ]
        self._reason: Optional[str] = None
        self._loop.read(control, self._controlled)

    def run(self, deadline: Optional[float]) -> int:
        """Run the pod to its end and answer its exit code; `deadline` is in seconds from now."""
        self._status.phase = "running"
        self._status.write()
        if deadline is not None:
            self._loop.after(max(0.0, deadline), lambda: self.stop("DeadlineExceeded"))
        self._loop.after(_FLUSH_SECONDS, self._flush)
        self._advance()
        self._loop.run()
        code = self._exit_code()
        self._status.phase = "ended"
        self._status.end = {"exit_code": code, "reason": self._reason, "message": ""}
        self._status.write()
        return code

    def changed(self) -> None:
        """A container's record has changed: write it, and start what is due now."""
        self._status.write()
        self._advance()

    def stop(self, reason: str) -> None:
        """TERM to all containers, after the grace period KILL; only the first call counts."""
        if self._reason is not None:
            return
        self._reason = reason
        self.stopping = True
        print("ending the pod: {}".format(reason), flush=True)
        for runner in self._runners:
            runner.terminate()
        self._loop.after(self._plan.grace_seconds, self._kill)
        self._advance()

    def _advance(self) -> None:
        if self._reason is None:
            for runner in self._due():
                # A container that fails at once comes back here, and may have begun the others.
                if runner.fresh:
                    runner.begin()
        if not any(runner.live for runner in self._runners) and (self.stopping or not self._due()):
            self._loop.stop()

    def _due(self) -> List[Runner]:
        for runner in self._runners:
            if runner.container.init:
                if runner.fresh:
                    return [runner]
                if runner.code != 0:
                    return []
        return [runner for runner in self._runners if runner.fresh]

    def _child_ended(self, pid: int, status: int) -> None:
        runner = self._context.children.pop(pid, None)
        if runner is not None:
            runner.child_ended(pid, status)

    def _kill(self) -> None:
        for runner in self._runners:
            runner.kill()

    def _controlled(self, data: bytes) -> None:
        if not data and self._context.sandbox is not None:
            os._exit(128 + signal.SIGKILL)  # nothing of the pod may outlive its batch process
        if b"T" in data:
            self.stop("Terminated")

    def _flush(self) -> None:
        for runner in self._runners:
            runner.flush()
        self._loop.after(_FLUSH_SECONDS, self._flush)

    def _exit_code(self) -> int:
        for runner in self._runners:
            if runner.code:
                return runner.code
        if self._reason == "DeadlineExceeded":
            return 128 + signal.SIGKILL  # a pod past its deadline has failed, whatever its containers say
        if any(runner.code is None for runner in self._runners):
            return 128 + signal.SIGTERM
        return 0

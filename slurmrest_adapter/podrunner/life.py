"""One container from its first start to its last end: the runs, the waits between them, its record."""

import time
from typing import Any, Dict, Optional

from .backoff import Backoff, again
from .plan import ContainerPlan
from .runner import Context, Runner
from .status import RUN


class Life:
    """Starts a container as often as its policy says. `code` is its last exit code once it is over."""

    def __init__(self, context: Context, plan: ContainerPlan, record: Dict[str, Any]) -> None:
        self._context = context
        self.container = plan
        self._record = record
        self.code: Optional[int] = None
        self.fresh = True  # nothing was begun
        self._run: Optional[Runner] = None
        self._before: Any = record["last_state"]  # the last state while the run after it waits
        self._ran = False  # at least once, were it only that its program could not be executed
        self._started = False
        self._begun = 0.0
        self._over = False  # no further start
        self._lacks_image = False
        self._backoff = Backoff(context.plan.backoff_base)
        self._images = Backoff(context.plan.backoff_base, context.plan.backoff_base)

    @property
    def live(self) -> bool:
        """Whether something of this container is under way, or will be after a wait."""
        return not self.fresh and self.code is None

    @property
    def active(self) -> bool:
        """Whether its image is being brought or its program runs."""
        return self._run is not None

    @property
    def started(self) -> bool:
        """Whether its program has run, now or before."""
        return self._started or (self._run is not None and self._run.running)

    def begin(self) -> None:
        """Start it: the first time, or after a wait."""
        if self._over:
            return
        self.fresh = False
        self._begun = time.monotonic()
        if not self._lacks_image:  # else what was wrong with it stands until it is not
            self._record.update(reason="ContainerCreating", message="")
        self._run = Runner(self._context, self.container, self._record, self._ran, self._ended)
        self._run.begin()

    def retire(self) -> None:
        """No further start; a program that runs goes on."""
        self._over = True
        if self._run is not None:
            self._run.retire()
        elif self.live:
            self._finish()

    def terminate(self) -> None:
        """TERM, and no further start."""
        self.retire()
        if self._run is not None:
            self._run.terminate()

    def kill(self) -> None:
        """KILL, and no further start."""
        self.retire()
        if self._run is not None:
            self._run.kill()

    def flush(self) -> None:
        """Write output that waits for its newline."""
        if self._run is not None:
            self._run.flush()

    def _ended(self, run: Runner) -> None:
        self._run = None
        self._started = self._started or run.running
        self._lacks_image = run.image_failed or (self._lacks_image and run.code is None)
        if run.code is None:  # the pod ended before it could start
            self._finish()
        elif run.image_failed:
            self._image_failed(run.code)
        else:
            self._ran = True
            ran = time.monotonic() - self._begun
            if run.code == 0 or self._backoff.long(ran):
                self._context.owner.worked()
            self._images = Backoff(self._context.plan.backoff_base, self._context.plan.backoff_base)
            if again(self.container.restart_policy, run.code) and not self._over:
                wait = self._backoff.after(ran)
                words = "restart {} comes {:g} s after the last end".format(
                    self._record["restart_count"] + 1, wait
                )
                self._wait(wait, "CrashLoopBackOff" if wait else "ContainerCreating", words if wait else "")
            else:
                self.code = run.code
        self._context.owner.changed()

    def _image_failed(self, code: int) -> None:
        record, plan = self._record, self._context.plan
        if not plan.image_retries or self.container.restart_policy == "Never":
            self.code = code
            return
        if self._over:
            self._finish()
            return
        wait = self._images.after(0.0)
        reason = record["reason"]
        if reason == "ErrImagePull" and wait > plan.backoff_base:
            reason = "ImagePullBackOff"
        self._wait(wait, reason, "{}; trying again after {:g} s".format(record["message"], wait), False)

    def _wait(self, wait: float, reason: str, message: str, ran: bool = True) -> None:
        record = self._record
        if ran:
            self._before = record["last_state"]
            record["last_state"] = {key: record[key] for key in RUN}
        record.update(dict.fromkeys(RUN))
        record.update(state="waiting", reason=reason, message=message)
        self._context.loop.after(wait, self._next)

    def _next(self) -> None:
        if not self._over:
            self.begin()
            self._context.owner.changed()

    def _finish(self) -> None:
        """It waits and never starts again: then its last run was its last state."""
        last = self._record["last_state"]
        if last is None or not self._ran:
            self.fresh = True  # the record stays "waiting", and nothing is left to wait for
            return
        self._record.update(last, state="terminated", last_state=self._before)
        self.code = last["exit_code"]

"""What changes a job: cancel, signal, update, hold, release. The gateway's half that gives orders."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import TypeVar

from slurmrest_adapter.domain.errors import Denied, NotFound, Rejected, SlurmError
from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.slurm import answers
from slurmrest_adapter.slurm.base import JobChange
from slurmrest_adapter.slurm.bindings.base import Binding, KillRow, Operation

T = TypeVar("T")

# Names that Slurm's own sig_name2num knows. Any other one kills the job (facts, "Cancel").
SIGNALS = frozenset({"HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2"}) | {
    "URG",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
}
_CANCEL_AT_ONCE = 1000
# Up to so many are asked for one by one, more by asking for all.
_LOOK_AT_MOST = 50
# Who may end anybody's job on a site without accounts, where nobody can be an operator.
_PRIVILEGED = frozenset({"root", "slurm"})


class Commands:
    """Orders to Slurm, each as the user who is named; see `base.SlurmGateway`.

    On a site without slurmdbd an attempt of an ordinary user to end another's job stops slurmctld for
    good, until it is restarted (seen on 24.11.5 and 26.05.5, by every version, one job or many: error 1
    after ten seconds, and no answer to anybody since). There, whose a job is is looked up first.
    """

    _without_accounts: bool

    def job(self, job_id: int, user: str | None = None) -> JobInfo:
        """A job in full."""
        raise NotImplementedError

    def _ask(self, operation: Operation[T], user: str | None) -> T:
        raise NotImplementedError

    def _binding(self, user: str | None) -> Binding:
        raise NotImplementedError

    def cancel(self, job_id: int, user: str) -> None:
        """Cancels as `user`; a job that has ended already is a success."""
        self._kill(job_id, user)

    def signal(self, job_id: int, signal_name: str, user: str, batch_only: bool = True) -> None:
        """Sends a signal to the batch process, or to it and all steps."""
        name = signal_name.removeprefix("SIG")
        if name not in SIGNALS:
            raise ValueError(f"{signal_name!r} is no signal that Slurm knows; it would kill the job")
        self._kill(job_id, user, signal=name, flags="BATCH_JOB" if batch_only else "FULL_JOB")

    def cancel_many(self, job_ids: Collection[int], user: str) -> dict[int, SlurmError]:
        """Cancels many as `user`; by id what was refused."""
        wanted = sorted({positive(job_id) for job_id in job_ids})
        refused: dict[int, SlurmError] = {}
        for start in range(0, len(wanted), _CANCEL_AT_ONCE):
            part = wanted[start : start + _CANCEL_AT_ONCE]
            binding = self._binding(user)
            if self._without_accounts and user not in _PRIVILEGED:
                not_theirs = self._not_theirs(part, user)
                refused |= not_theirs
                part = [job_id for job_id in part if job_id not in not_theirs]
                if not part:
                    continue
            operation = binding.kill_many(part)
            try:
                failed = self._ask(operation, user)
            except Rejected as error:
                if error.number == answers.NO_JOBS_GIVEN:
                    # A proxy dropped the body of the DELETE, as some do.
                    refused |= self._cancel_each(part, user)
                elif error.number != answers.ALREADY_DONE:
                    raise
                continue
            refused |= {
                row.job_id: _row_error(row, operation)
                for row in failed
                if row.number != answers.ALREADY_DONE and row.job_id is not None
            }
        return refused

    def update(self, job_id: int, change: JobChange, user: str) -> None:
        """Changes a job as `user`."""
        operation = self._binding(user).update(positive(job_id), change)
        for row in self._ask(operation, user):
            raise _row_error(row, operation)

    def hold(self, job_id: int, user: str) -> None:
        """Keeps a pending job from starting."""
        self.update(job_id, JobChange(hold=True), user)

    def release(self, job_id: int, user: str) -> None:
        """Lets a held job start."""
        self.update(job_id, JobChange(hold=False), user)

    def _kill(self, job_id: int, user: str, *, signal: str | None = None, flags: str | None = None) -> None:
        operation = self._binding(user).kill(positive(job_id), signal=signal, flags=flags)
        if self._without_accounts and user not in _PRIVILEGED:
            for error in self._not_theirs([job_id], user).values():
                raise error
        try:
            failed = self._ask(operation, user)
        except Rejected as error:
            if error.number == answers.ALREADY_DONE:
                return
            raise
        for row in failed:
            if row.number != answers.ALREADY_DONE:
                raise _row_error(row, operation)

    def _not_theirs(self, job_ids: Collection[int], user: str) -> dict[int, SlurmError]:
        """The jobs that are not the user's, or that the user may not see, each with why."""
        owners: dict[int, str] = {}
        if len(job_ids) > _LOOK_AT_MOST:
            owners = {job.job_id: job.user for job in self._ask(self._binding(user).jobs(), user)}
        else:
            for job_id in job_ids:
                with contextlib.suppress(NotFound):
                    owners[job_id] = self.job(job_id, user).user
        found: dict[int, SlurmError] = {}
        for job_id in job_ids:
            if job_id not in owners:
                found[job_id] = NotFound(answers.NO_SUCH_JOB, f"slurmctld does not show job {job_id}")
            elif owners[job_id] != user:
                words = f"job {job_id} belongs to {owners[job_id] or 'an unknown user'}"
                found[job_id] = Denied(answers.DENIED, words)
        return found

    def _cancel_each(self, job_ids: Iterable[int], user: str) -> dict[int, SlurmError]:
        refused: dict[int, SlurmError] = {}
        for job_id in job_ids:
            try:
                self.cancel(job_id, user)
            except Rejected as error:
                refused[job_id] = error
        return refused


def positive(job_id: int) -> int:
    """The id, if it can be one. Raises ValueError."""
    if job_id <= 0:
        raise ValueError(f"{job_id} is no job id")
    return job_id


def _row_error(row: KillRow, operation: Operation[T]) -> SlurmError:
    return answers.row_error(answers.ErrorRow(error_number=row.number, error=row.words), path=operation.path)

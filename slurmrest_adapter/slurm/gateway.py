"""The room's face: questions and commands to Slurm, each as the right user.

One gateway serves all users from one pool of connections. Who asks is in the headers of each call
and kept nowhere, so one user's identity cannot stick to another's call.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import requests

from slurmrest_adapter.domain.errors import (
    Incompatible,
    MaybeAccepted,
    NotFound,
    RefusedIdentity,
    Rejected,
    SlurmError,
    Unavailable,
)
from slurmrest_adapter.domain.jobs import (
    AccountingRecord,
    FoundJob,
    JobInfo,
    JobRef,
    JobState,
    NodeInfo,
    PartitionInfo,
    Ping,
)
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm import answers, bulk, negotiate
from slurmrest_adapter.slurm import breaker as breaking
from slurmrest_adapter.slurm import retry as retrying
from slurmrest_adapter.slurm.bindings.base import Binding, Operation
from slurmrest_adapter.slurm.breaker import Breaker, BreakerPolicy
from slurmrest_adapter.slurm.commands import Commands, positive
from slurmrest_adapter.slurm.retry import Counters, Retrier, RetryPolicy, retry_after
from slurmrest_adapter.slurm.session import AnswerLost, Session
from slurmrest_adapter.slurm.shared import Shared
from slurmrest_adapter.slurm.tokens import TokenSource

T = TypeVar("T")
_log = logging.getLogger(__name__)

_ACTIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
# Ping proves nothing about its asker, so with minted tokens anybody may ask.
_ANYBODY = "nobody"


class Gateway(Commands):
    """Slurm through slurmrestd; see `base.SlurmGateway` for what each method promises.

    Args:
        session: the connections.
        tokens: where tokens come from.
        api_version: ``auto`` or one version.
        service_user: asks the bulk questions; None leaves them to the user named in the call.
        never_as: names that jobs never run as.
        min_uid: least uid a job may run as, where the uid is known.
        retry: how questions and cancels are asked again; a submit never is.
        breaker: when a daemon that does not answer is left alone.
        clock, sleep: monotonic seconds and waiting; replaced where time must be made up.
    """

    def __init__(
        self,
        session: Session,
        tokens: TokenSource,
        *,
        api_version: str = "auto",
        service_user: str | None = None,
        never_as: Collection[str] = ("root", "slurm"),
        min_uid: int = 1000,
        retry: RetryPolicy = retrying.USUAL,
        breaker: BreakerPolicy = breaking.USUAL,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if api_version != "auto":
            negotiate.load(api_version)  # a misspelt version stops the start, not the first pod
        self._session = session
        self._tokens = tokens
        self._api_version = api_version
        self._service_user = service_user
        self._never_as = frozenset(never_as)
        self._min_uid = min_uid
        self._chosen: Binding | None = None
        self._without_accounts = False  # known with the version
        self._no_database = False  # of this slurmrestd; known once it was asked for
        self._clock = clock
        self._bulk = bulk.Chooser()
        self._all_jobs: Shared[list[FoundJob]] = Shared()
        self._counters = Counters()
        self._retried = Retrier(retry, self._counters, clock=clock, sleep=sleep)
        # slurmdbd may be down alone, and nobody shall wait for slurmctld because of it.
        self._slurmctld, self._slurmdbd = (
            Breaker(name, breaker, opened=lambda: self._counters.add("opened"), clock=clock)
            for name in ("slurmctld", "slurmdbd")
        )

    @property
    def api_version(self) -> str | None:
        """The version that is spoken; None before the first call in ``auto``."""
        return self._chosen.version if self._chosen else None

    @property
    def keeps_accounts(self) -> bool:
        """See `base.SlurmGateway`."""
        return not (self._without_accounts or self._no_database)

    @property
    def counters(self) -> Mapping[str, int]:
        """``retries`` (calls made again), ``gave_up`` (questions that failed at the last), ``opened``
        (how often the circuit to a daemon opened); what never happened is missing."""
        return self._counters.read()

    def token_expires(self, user: str | None = None) -> float | None:
        """POSIX seconds at which the present token of `user` ends; None if that is not known."""
        return self._tokens.expires(user or self._service_user)

    def close(self) -> None:
        """Closes the idle connections."""
        self._session.close()

    def ping(self) -> Ping:
        """Whether slurmctld answers; to a refused token it does not, which shows here as down."""
        user = self._service_user or (_ANYBODY if self._tokens.needs_user else None)
        return self._ask(self._binding(user).ping(), user)

    def partitions(self, user: str | None = None) -> list[PartitionInfo]:
        """All partitions that the asker may see."""
        asker = self._service_user or user
        return self._ask(self._binding(asker).partitions(), asker)

    def nodes(self, user: str | None = None) -> list[NodeInfo]:
        """All nodes that the asker may see."""
        asker = self._service_user or user
        return self._ask(self._binding(asker).nodes(), asker)

    def submit(self, spec: JobSpec, script: str) -> JobRef:
        """Submits as `spec.user`; a job id is the only proof that there is a job."""
        self._may_run(spec)
        binding = self._binding(spec.user)
        # Without a token the listener decides whose the job is; with the owner named in it Slurm
        # refuses any other, instead of running the pod as slurmrestd's own user.
        operation = binding.submit(spec, script, name_owner=not self._tokens.says_who)
        try:
            with self._slurmctld.call():
                response = self._send(operation, spec.user)
                return self._submitted(operation, response, spec.user)
        except AnswerLost as lost:
            words = str(lost)
        raise MaybeAccepted(f"the job may have been accepted: {words}")

    def job(self, job_id: int, user: str | None = None) -> JobInfo:
        """A job in full."""
        asker = user or self._service_user
        found = self._ask(self._binding(asker).job(positive(job_id)), asker)
        for row in found:
            if row.job_id == job_id:
                return row
        raise NotFound(answers.NO_SUCH_JOB, f"slurmctld does not show job {job_id}")

    def states(self, job_ids: Collection[int] | None = None, user: str | None = None) -> dict[int, JobState]:
        """State words by job id."""
        asker = self._service_user or user
        wanted = None if job_ids is None else {positive(job_id) for job_id in job_ids}
        if wanted is not None and not wanted:
            return {}
        binding = self._binding(asker)
        if wanted is None:
            return self._ask(binding.states(None), asker)
        found: dict[int, JobState] = {}
        begun = self._clock()
        few = len(wanted) <= bulk.FILTER_AT_MOST
        way = bulk.Way.CHUNKS if few else self._bulk.choose(len(wanted))
        if way is bulk.Way.ALL:
            found = self._ask(binding.states(None), asker)
        else:
            for part in bulk.chunks(sorted(wanted)):
                states = self._ask(binding.states(part), asker)
                found |= states
        if not few:
            self._bulk.took(way, len(wanted), self._clock() - begun)
        return {job_id: state for job_id, state in found.items() if job_id in wanted}

    def accounting(self, job_id: int, user: str | None = None) -> AccountingRecord | None:
        """What slurmdbd keeps of the latest run under this id; None where there is no slurmdbd."""
        asker = user or self._service_user
        found = self._ask_database(self._binding(asker).accounting(positive(job_id)), asker)
        # Compared, since slurmdbd ignores filters it does not like and then answers with others.
        same = [record for record in found if record.job_id == job_id]
        return max(same, key=_recency, default=None)

    def find_by_name(self, name: str, user: str, since: int | None = None) -> list[FoundJob]:
        """Asks slurmdbd, and slurmctld unless that showed a job that has not ended.

        slurmdbd is quick, but learns of a job only when it becomes eligible: not of one that is
        held or waits for a dependency. slurmctld has them all, at the price of the whole list; on a
        site without slurmdbd it alone is asked, and forgets a job some minutes after its end (MinJobAge).
        """
        binding = self._binding(user)
        found: list[FoundJob] = []
        past_unknown: SlurmError | None = None
        try:
            # Without a start slurmdbd looks back to midnight.
            found = self._ask_database(binding.accounting_by_name(name, user, since or 1), user)
        except Unavailable as error:
            past_unknown = error
        found = _named(found, name, user)
        if any(_ACTIVE.intersection(job.states) for job in found):
            return found
        present = self._all_jobs(user, lambda: self._ask(binding.jobs(), user))
        # slurmctld's row is the newer one.
        merged = {(job.job_id, job.submit_time): job for job in found + _named(present, name, user)}
        if not merged and past_unknown is not None:
            raise Unavailable(f"cannot prove that there is no job {name}: {past_unknown}")
        return list(merged.values())

    def _may_run(self, spec: JobSpec) -> None:
        if spec.user in self._never_as:
            raise RefusedIdentity("user", f"jobs never run as {spec.user}")
        if spec.uid is not None and spec.uid < self._min_uid:
            raise RefusedIdentity("uid", f"{spec.uid} is below identity.min_uid ({self._min_uid})")
        if not self._tokens.says_who and (spec.uid is None or spec.gid is None):
            raise RefusedIdentity(
                "uid",
                f"without tokens, uid and gid of {spec.user} must be known, or the job could be another's",
            )

    def _submitted(
        self, operation: Operation[JobRef | None], response: requests.Response, user: str
    ) -> JobRef:
        said = answers.submitted(response)
        ref = operation.read(response) if said is not None else None
        if ref is not None and said is not None:
            errors = tuple(row.words for row in said.error_rows)
            warnings = tuple(dict.fromkeys((*said.warning_words, *errors)))
            return JobRef(ref.job_id, warnings=warnings, message=ref.message)
        found = self._check(response, user)
        raise Rejected(0, "; ".join(found.warning_words) or "answered without a job id and without a word")

    def _ask(self, operation: Operation[T], user: str | None) -> T:
        if operation.repeatable:
            return self._retried(lambda: self._ask_once(operation, user))
        return self._ask_once(operation, user)

    def _ask_database(self, operation: Operation[list[T]], user: str | None) -> list[T]:
        """Nothing, where slurmrestd serves no ``/slurmdb``: such a site keeps no accounts."""
        try:
            return self._ask(operation, user)
        except answers.NoDatabase:
            version = self._binding(user).version
            if self._serves(version, user):
                self._no_database = True
                return []
        self._chosen = None  # it is the version that is missing
        raise Incompatible((version,), ())

    def _ask_once(self, operation: Operation[T], user: str | None) -> T:
        with self._circuit(operation):
            response = self._send(operation, user)
            try:
                self._check(response, user)
            except Unavailable:
                if operation.path.startswith("/slurmdb/"):
                    self._prove_token(user)
                raise
        return operation.read(response)

    def _circuit(self, operation: Operation[T]) -> contextlib.AbstractContextManager[None]:
        if operation.path.startswith("/slurmdb/"):
            return self._slurmdbd.call()
        if operation.path.endswith("/ping/"):
            # Asks whether slurmctld answers, so it is never kept from asking; and slurmrestd
            # answers it also when slurmctld is down.
            return contextlib.nullcontext()
        return self._slurmctld.call()

    def _prove_token(self, user: str | None) -> None:
        """Raises `Unauthorized` when slurmctld refuses the token.

        A refused token and a slurmdbd that is down are the same answer under ``/slurmdb``: 502
        with error 7000. slurmctld tells them apart.
        """
        binding = self._binding(user)
        with contextlib.suppress(Unavailable):
            self._check(self._send(binding.states([1]), user), user)

    def _send(self, operation: Operation[T], user: str | None) -> requests.Response:
        return self._session.send(
            operation.method,
            operation.path,
            params=operation.params,
            body=operation.body,
            headers=self._identity(user),
            repeatable=operation.repeatable,
        )

    def _identity(self, user: str | None) -> dict[str, str]:
        """The headers that say who asks, for one call."""
        if user is not None and not (user.isascii() and user.isprintable() and user.split() == [user]):
            raise RefusedIdentity("user", f"{user!r} cannot be a Slurm user's name")
        token = self._tokens.token(user)
        if token is None:
            return {}
        headers = {answers.TOKEN_HEADER: token.reveal()}
        if user is not None:
            headers[answers.USER_HEADER] = user
        return headers

    def _check(self, response: requests.Response, user: str | None) -> answers.Envelope:
        try:
            return answers.check(response, source=self._tokens, user=user, ours=negotiate.OURS)
        except Incompatible:
            self._chosen = None  # slurmrestd may have been upgraded: negotiate anew next time
            raise
        except Unavailable as error:
            error.retry_after = retry_after(response.headers)
            raise

    def _binding(self, user: str | None) -> Binding:
        chosen = self._chosen
        if chosen is None:
            # Without a lock: two that find out the same do no harm, and none waits out another's time-out.
            chosen = self._retried(
                lambda: negotiate.choose(self._api_version, lambda v: self._serves(v, user))
            )
            self._chosen = chosen
            _log.info("slurmrestd is spoken to in %s", chosen.version)
        return chosen

    def _serves(self, version: str, user: str | None) -> bool:
        with self._slurmctld.call(proves=False):
            response = self._session.send(
                "GET", f"/slurm/{version}/ping/", headers=self._identity(user), repeatable=True
            )
            try:
                said = answers.check(response, source=self._tokens, user=user, ours=negotiate.OURS)
            except Incompatible:
                return False
        self._without_accounts = said.keeps_accounts is False
        return True


def _named(jobs: Iterable[FoundJob], name: str, user: str) -> list[FoundJob]:
    """Exactly these; slurmctld leaves the user out where it cannot resolve the uid."""
    return [job for job in jobs if job.name == name and job.user in (user, "")]


def _recency(record: AccountingRecord) -> tuple[int, int, int]:
    return (record.submit_time or 0, record.restart_count, record.start_time or 0)

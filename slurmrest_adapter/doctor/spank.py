"""The SPANK plugin's events: whether they can come, and whether they do."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from slurmrest_adapter.config import Settings
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.domain import spank
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.sources.spank import read_key, sign
from slurmrest_adapter.sources.spankpost import NotDelivered, post, probe
from slurmrest_adapter.store.base import EventStore
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.events import Outcome

SPANK = "spank"
KEY: Final = "key"
LISTENER: Final = "listener"
EVENTS: Final = "events"
# So many of the newest jobs are looked at.
_JOBS = 50
# slurmd's own retries, and the plugin's half a minute of leaving a silent sidecar alone.
_LATE_SECONDS = 60.0
_TIMEOUT = 5.0


@dataclass(frozen=True)
class Stores:
    """What this host's `serve` has kept; None where it has not started yet."""

    events: EventStore | None
    pods: SqliteStore | None


def stores(settings: Settings) -> Stores:
    """Opened only where they are: nothing is made.

    Raises:
        ConfigError: one of them cannot be used.
    """
    events, pods = (settings.state_dir / name for name in ("events.sqlite3", "pods.sqlite3"))
    return Stores(
        SqliteEvents(events) if events.exists() else None, SqliteStore(pods) if pods.exists() else None
    )


def of_site(settings: Settings, try_event: bool = False) -> list[Check]:
    """Every check; one that says why, where the site has no plugin.

    Args:
        try_event: post a signed event of no job, which changes nothing but a counter; otherwise only
            whether somebody listens is looked at.
    """
    given = settings.spank
    if not given.enabled:
        return [skip(SPANK, "spank.enabled is false: jobs are seen by the poll alone")]
    if given.events is None or given.key_file is None:
        missing = "spank.events" if given.events is None else "spank.key_file"
        advice = "slurmrest-adapter spank hint shows what belongs there"
        return [fail(SPANK, f"{missing} is not configured, and serve does not start", advice, KEY)]
    try:
        key = read_key(given.key_file)
        kept = stores(settings)
    except ConfigError as error:
        return [fail(SPANK, str(error), "correct it; nodes and this host need the same key", KEY)]
    except OSError as error:
        return [skip(SPANK, f"{settings.state_dir} cannot be looked into: {error.strerror}", EVENTS)]
    found = [ok(SPANK, f"{given.key_file}, {len(key)} bytes", KEY)]
    if try_event:
        found.append(_self_test(settings.cluster, given.events, key, kept.events))
    else:
        found.append(_listens(given.events))
    return [*found, _heard(kept), *_forged(kept.events)]


def nodes(kept: Stores) -> list[Check]:
    """Each node that has sent something within the retention."""
    found = []
    for node, told in (kept.events.nodes() if kept.events is not None else {}).items():
        seen = f"{told.events} events, the last {age(time.time() - told.last)} ago"
        if told.dropped:
            advice = "raise spool_max= in plugstack.conf, and drain spools sooner"
            found.append(warn(SPANK, f"{seen}; its spool dropped {told.dropped}", advice, node))
        else:
            found.append(ok(SPANK, seen, node))
    return found


def age(seconds: float) -> str:
    """For people: ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _listens(address: str) -> Check:
    try:
        code = probe(address, _TIMEOUT)
    except NotDelivered as error:
        return warn(SPANK, f"nobody listens: {error}", "start slurmrest-adapter serve", LISTENER)
    if code == 405:
        return ok(SPANK, f"{address} answers", LISTENER)
    return fail(
        SPANK, f"{address} is another server's: it answers {code}", "choose another spank.events", LISTENER
    )


def _self_test(cluster: str, address: str, key: bytes, events: EventStore | None) -> Check:
    before = _count(events)
    event: Mapping[str, object] = {
        "v": 1, "event": str(spank.Kind.TEST), "cluster": cluster, "node": _host(), "time": time.time(),
        "stream": secrets.token_hex(8), "seq": 1,
    }  # fmt: skip
    body = msgspec.json.encode(event)
    try:
        code = post(address, body, sign(key, body), _TIMEOUT)
    except NotDelivered as error:
        return fail(
            SPANK, f"a test event was not delivered: {error}", "start slurmrest-adapter serve", LISTENER
        )
    if code == 403:
        advice = "restart serve, which read its key at its start; or correct spank.key_file"
        return fail(SPANK, f"{address} refuses events signed with spank.key_file", advice, LISTENER)
    if code != 204:
        return fail(SPANK, f"{address} answers {code}", "see what listens there, and serve's log", LISTENER)
    if events is not None and _count(events) <= before:
        advice = "run this with the configuration that serve has: cluster, state_dir"
        return fail(SPANK, f"{address} answered 204 and counted nothing here", advice, LISTENER)
    return ok(SPANK, f"{address} took a signed test event and counted it", LISTENER)


def _count(events: EventStore | None) -> int:
    return events.counters().get(str(Outcome.TEST), 0) if events is not None else 0


def _host() -> str:
    name = "".join(c for c in socket.gethostname() if c.isascii() and (c.isalnum() or c in "._-"))
    return name[:255] or "localhost"


def _heard(kept: Stores) -> Check:
    """Have events come for the jobs that ran?"""
    ran = _ran(kept)
    if not ran or kept.events is None:
        return skip(SPANK, "no job that carried the plugin's option has run yet", EVENTS)
    heard = sum(bool(kept.events.of_job(job)) for job in ran)
    seen = f"events of {heard} of the last {len(ran)} jobs that ran"
    if heard:
        return ok(SPANK, seen, EVENTS)
    advice = (
        "see slurmrest-adapter spank hint: the plugin in plugstack.conf of every node, slurmd restarted, the "
        "same key and cluster, the way to spank.events open; slurmd's log has lines of slurmrest_adapter"
    )
    return warn(SPANK, f"no event ever came: {seen}", advice, EVENTS)


def _ran(kept: Stores) -> list[int]:
    """Ids of the newest jobs that carried the option and have been running for a while, or did."""
    until = time.time() - _LATE_SECONDS
    found = []
    for record in kept.pods.pods(ended=True) if kept.pods is not None else []:
        start = record.job.get("start_time")
        carried = spank.POD_UID_VARIABLE in (record.spec.get("environment") or {})
        if record.job_id is not None and carried and start and record.job.get("nodes") and start < until:
            found.append(record.job_id)
    return found[:_JOBS]


def _forged(events: EventStore | None) -> list[Check]:
    """Where nearly everything is refused, somebody has another key or another cluster's name."""
    counted = events.counters() if events is not None else {}
    taken = counted.get(str(Outcome.TAKEN), 0)
    advice = {
        Outcome.FORGED: "compare key_file on the nodes with spank.key_file here",
        Outcome.OTHER_CLUSTER: "cluster= in plugstack.conf has to be the configuration's cluster",
        Outcome.STALE: "compare the nodes' clocks with this host's",
    }
    return [
        warn(SPANK, f"{counted[outcome]} events counted as {outcome}, {taken} taken", words, str(outcome))
        for outcome, words in advice.items()
        if counted.get(str(outcome), 0) > max(10, taken)
    ]

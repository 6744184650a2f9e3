"""A container's log as kubectl asks for it: tail, limit, since, timestamps, previous, follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.logs import runs
from slurmrest_adapter.logs.cri import Piece
from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.server.wire import LogOptions
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.loop import Loop


def stream(
    deps: Deps, loop: Loop, record: PodRecord, options: LogOptions, gone: Callable[[], bool]
) -> Iterator[bytes]:
    """The log's bytes, in portions of some 64 KiB at most, each given as soon as it is read.

    A container that has not started yet has none, which is no error.

    Args:
        gone: True once nobody reads any more.
    """
    choose = runs.previous if options.previous else runs.newest
    run = choose(record.runner, options.container)
    since = _since(deps, options)
    if run < 0:
        raise Invalid("Opts.Previous", f"container {options.container!r} has no earlier run")
    log = ContainerLog(deps.shared_root, record.directory, options.container, record.spec.get("uid"), run)
    ended = _ended(loop, record.uid, options.container, run) if options.follow else lambda: True
    batches = log.batches(ended, options.tail, gone=gone)
    return _limited(_text(batches, since, options.timestamps), options.limit_bytes)


def _since(deps: Deps, options: LogOptions) -> str | None:
    """The earliest time wanted, in the form of the log's own (which compares as text)."""
    if options.since_time is not None:
        try:
            moment = datetime.fromisoformat(options.since_time).astimezone(UTC)
        except ValueError as error:
            raise Invalid("Opts.SinceTime", f"{options.since_time!r} is no RFC 3339 time") from error
    elif options.since_seconds is not None:
        moment = datetime.fromtimestamp(deps.clock(), UTC) - timedelta(seconds=options.since_seconds)
    else:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def _text(batches: Iterable[list[Piece]], since: str | None, timestamps: bool) -> Iterator[bytes]:
    """One chunk for each batch, or the cost of sending a line would be the cost of a chunk."""
    fresh = True
    for batch in batches:
        chunk = bytearray()
        for piece in batch:
            if since is not None and piece.time < since:
                continue
            if timestamps and fresh:
                chunk += piece.time.encode() + b" "
            chunk += piece.content
            fresh = piece.full
        if chunk:
            yield bytes(chunk)


def _limited(chunks: Iterator[bytes], limit: int | None) -> Iterator[bytes]:
    """At most `limit` bytes, counted from the beginning of what is sent."""
    if limit is None:
        yield from chunks
        return
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return


def _ended(loop: Loop, uid: str, container: str, run: int) -> Callable[[], bool]:
    def ended() -> bool:
        seen = loop.seen(uid)
        if seen is None or seen.standing.ended or seen.status.exit_code is not None:
            return True
        both = (*seen.status.init_containers, *seen.status.containers)
        return any(one["name"] == container and runs.is_over(one, run) for one in both)

    return ended

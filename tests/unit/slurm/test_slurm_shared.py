"""One answer for all who ask the same at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.slurm.shared import Shared


class Slow:
    """A question that is answered when it is let go; answers are numbered."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        self.begun.release()
        self.go.acquire()
        return number


def test_who_comes_later_shares_the_next_answer_and_never_the_present_one() -> None:
    shared: Shared[int] = Shared()
    slow = Slow()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(shared, "alice", slow)
        slow.begun.acquire()
        later = [pool.submit(shared, "alice", slow) for _ in range(10)]
        waiting(shared)
        slow.go.release()
        assert first.result() == 1
        slow.begun.acquire()
        slow.go.release(10)
        assert {future.result() for future in later} <= {2, 3}
        assert slow.asked <= 3


def waiting(shared: Shared[int]) -> None:
    """Until somebody waits for the next answer."""
    while "alice" not in shared._waiting:
        threading.Event().wait(0.001)


def test_others_do_not_wait() -> None:
    shared: Shared[int] = Shared()
    slow = Slow()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared, "alice", slow)
        slow.begun.acquire()
        assert shared("bob", lambda: 7) == 7  # another user sees other jobs
        slow.go.release()
        assert first.result() == 1


def test_an_error_is_shared_and_kept_by_nobody() -> None:
    shared: Shared[int] = Shared()
    begun, go = threading.Event(), threading.Event()

    def fail() -> int:
        begun.set()
        go.wait()
        raise Unavailable("no")

    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[int]] = [pool.submit(shared, "alice", fail)]
        begun.wait()
        futures.append(pool.submit(shared, "alice", fail))
        go.set()
        for future in futures:
            with pytest.raises(Unavailable):
                future.result()
    assert shared("alice", lambda: 3) == 3


def test_one_that_is_cut_short_holds_nobody() -> None:
    shared: Shared[int] = Shared()

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared("alice", interrupted)
    assert shared("alice", lambda: 3) == 3

"""The work queue and the cache of pods."""

from __future__ import annotations

import threading
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vk_provider.cache import PodCache
from vk_provider.queue import WorkQueue


def test_a_key_waits_once_and_comes_again_after_news() -> None:
    queue = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [queue.get(), queue.get()] == ["a", "b"]
    queue.add("a")  # news while it is worked on
    queue.done("b")
    queue.done("a")
    assert queue.get() == "a"


def test_delays_and_back_off() -> None:
    clock = [0.0]
    queue = WorkQueue(1.0, 4.0, lambda: clock[0])
    seconds = [queue.retry("a") for _ in range(4)]
    assert 0.8 <= seconds[0] <= 1.2
    assert 3.2 <= seconds[3] <= 4.8
    clock[0] = 1.3
    assert queue.get() == "a"
    queue.forget("a")
    assert queue.retry("a") <= 1.2
    queue.close()
    assert queue.get() is None


def test_one_worker_at_a_time_for_a_key_and_no_news_lost() -> None:
    queue, busy, handled = WorkQueue(), set[str](), dict[str, int]()
    asked: dict[str, int] = {}
    faults: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        while (key := queue.get()) is not None:
            with lock:
                if key in busy:
                    faults.append(key)
                busy.add(key)
                handled[key] = asked[key]
            with lock:
                busy.discard(key)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for number in range(2000):
        key = f"k{number % 7}"
        with lock:
            asked[key] = number
        queue.add(key)
    while True:
        with lock:
            if handled == asked and not busy:
                break
        time.sleep(0.001)
    queue.close()
    for worker in workers:
        worker.join()
    assert not faults


def pod(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 50), st.booleans())))
def test_an_older_version_never_replaces_a_newer_one(writes: list[tuple[str, int, bool]]) -> None:
    cache = PodCache()
    newest: dict[str, int] = {}
    for uid, version, ours in writes:
        if ours:
            cache.update(pod(uid, version))
            if uid in newest:
                newest[uid] = max(newest[uid], version)
        else:
            cache.put(pod(uid, version))
            newest[uid] = max(newest.get(uid, 0), version)
    found = {uid: kept["metadata"]["resourceVersion"] for uid in "ab" if (kept := cache.get(uid))}
    assert found == {uid: str(version) for uid, version in newest.items()}


def test_a_list_tells_of_those_that_are_gone() -> None:
    cache = PodCache()
    assert cache.replace([pod("a", 1), pod("b", 1)]) == {"a", "b"}
    assert cache.replace([pod("b", 2)]) == {"a", "b"}
    assert cache.get("a") is None
    cache.update(pod("a", 3))
    assert cache.get("a") is None, "the answer to our own write brings nothing back"

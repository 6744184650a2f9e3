"""The threads that requests are answered by: one kind of request never waits for another kind's.

A create waits for Slurm, for a minute when Slurm is slow; a status is answered from memory and
must not queue behind it; a follower keeps its thread for as long as its container runs.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

FOLLOWERS = 256
_CREATES, _DELETES, _ANSWERS = 16, 4, 8

P = ParamSpec("P")
T = TypeVar("T")


class Pools:
    """Thread pools by what they wait for.

    Attributes:
        creates: wait for Slurm.
        deletes: wait for the store alone; beside creates, which a node that drains must not wait for.
        answers: wait for memory, at most for the store.
        logs: wait for logs to grow.
    """

    def __init__(self, followers: int = FOLLOWERS) -> None:
        self.creates = ThreadPoolExecutor(_CREATES, thread_name_prefix="create")
        self.deletes = ThreadPoolExecutor(_DELETES, thread_name_prefix="delete")
        self.answers = ThreadPoolExecutor(_ANSWERS, thread_name_prefix="answer")
        self.logs = ThreadPoolExecutor(followers, thread_name_prefix="logs")
        self.free_followers = followers

    def close(self) -> None:
        """Begin nothing more; what has begun goes on to its end."""
        for pool in (self.creates, self.deletes, self.answers, self.logs):
            pool.shutdown(wait=False, cancel_futures=True)


async def run_in(pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do a piece of blocking work in a pool; what is logged there carries the request's keys."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: context.run(work, *args, **named))

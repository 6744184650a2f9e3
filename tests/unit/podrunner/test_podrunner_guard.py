"""Processes that must not outlive a runner that was killed."""

import os
import signal
import time
import unittest
from typing import List

from slurmrest_adapter.podrunner import process


def ended(pid: int, seconds: float) -> bool:
    """Whether a child of ours ends within so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def sleeper() -> int:
    pid = process.fork_clean()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


class Guard(unittest.TestCase):
    def after_runner(self, told: List[int], number: int) -> None:
        """A "runner" tells its guard of processes and is ended by a signal."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            guard = process.guard()
            os.write(guard, "".join("{}\n".format(one) for one in told).encode("ascii"))
            os.write(writer, b"x")
            time.sleep(600)
            os._exit(0)
        os.read(reader, 1)
        os.close(reader)
        os.close(writer)
        os.kill(pid, number)
        os.waitpid(pid, 0)

    def test_what_was_told_is_killed_and_nothing_else(self) -> None:
        left, gone = sleeper(), sleeper()
        try:
            self.after_runner([left, gone, -gone], signal.SIGKILL)
            self.assertTrue(ended(left, 30))
            self.assertEqual(os.waitpid(gone, os.WNOHANG), (0, 0))
        finally:
            os.kill(gone, signal.SIGKILL)
            os.waitpid(gone, 0)

    def test_a_number_that_came_again_counts(self) -> None:
        left = sleeper()
        self.after_runner([left, -left, left], signal.SIGTERM)
        self.assertTrue(ended(left, 30))


if __name__ == "__main__":
    unittest.main()

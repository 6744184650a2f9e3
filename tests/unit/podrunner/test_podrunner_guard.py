"""Processes that must not outlive a runner that was killed."""

import os
import select
import signal
import sys
import time
import unittest
from typing import Callable

from slurmrest_adapter.podrunner import process


class Sleeper:
    """A child that only a signal ends."""

    def __init__(self) -> None:
        self.pid = process.fork_clean()
        self._over = False
        if self.pid == 0:
            time.sleep(600)
            os._exit(0)

    def ends(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        deadline = time.monotonic() + seconds
        while not self._over:
            self._over = bool(os.waitpid(self.pid, os.WNOHANG)[0])
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        return self._over

    def end(self) -> None:
        if not self._over:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Guard(unittest.TestCase):
    def after_runner(self, body: Callable[[process.Guard], None], number: int = signal.SIGKILL) -> None:
        """A "runner" with a guard does something and is ended by a signal."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if number != signal.SIGKILL:
                    signal.signal(number, signal.SIG_DFL)  # another test may have left a handler
                body(process.Guard())
                os.write(writer, b"x")
                time.sleep(600)
            finally:
                os._exit(1)
        os.close(writer)
        self.assertEqual(os.read(reader, 1), b"x")
        os.close(reader)
        os.kill(pid, number)
        os.waitpid(pid, 0)

    def test_what_was_told_is_killed_and_nothing_else(self) -> None:
        told, untold, gone = sleepers = [Sleeper() for _ in range(3)]
        try:

            def body(guard: process.Guard) -> None:
                guard._tell(told.pid)
                guard._tell(gone.pid)
                guard.ended(gone.pid)

            self.after_runner(body)
            self.assertTrue(told.ends(30))
            self.assertFalse(untold.ends(0.2))
            self.assertFalse(gone.ends(0))
        finally:
            for one in sleepers:
                one.end()

    def test_a_number_that_came_again_counts(self) -> None:
        left = Sleeper()
        try:

            def body(guard: process.Guard) -> None:
                guard._tell(left.pid)
                guard.ended(left.pid)
                guard._tell(left.pid)

            self.after_runner(body, signal.SIGTERM)
            self.assertTrue(left.ends(30))
        finally:
            left.end()

    def test_a_program_that_outlives_its_parent_by_itself(self) -> None:
        """It tells of itself, and the kernel's own signal at a parent's death is off, as Apptainer has it."""
        reader, writer = os.pipe()
        off = "import ctypes, os, time; ctypes.CDLL(None).prctl(1, 0); os.write(1, b'x'); time.sleep(600)"
        words = os.open(os.devnull, os.O_WRONLY)

        pid = os.fork()
        if pid == 0:
            try:
                process.spawn([sys.executable, "-c", off], {}, writer, words, process.Guard().watch)
                time.sleep(600)
            finally:
                os._exit(1)
        os.close(writer)
        self.assertEqual(os.read(reader, 1), b"x")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        # Whoever lives holds the pipe open.
        self.assertEqual(select.select([reader], [], [], 30)[0], [reader])
        self.assertEqual(os.read(reader, 1), b"")
        os.close(reader)
        os.close(words)

    def test_the_guard_is_not_below_the_runner(self) -> None:
        """Where Slurm would find and kill it first."""
        before = set(process.descendants(os.getpid()))
        process.Guard()
        self.assertEqual(set(process.descendants(os.getpid())), before)


if __name__ == "__main__":
    unittest.main()

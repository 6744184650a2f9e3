"""What containers use, counted from a tree of /proc: a made one, and this process's own."""

import os
import tempfile
import time
import unittest
from typing import Any, Dict
from unittest import mock

from slurmrest_adapter.podrunner import loop, process, status, usage

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


class Samples(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.proc = directory.name
        patch = mock.patch.object(process, "PROC", self.proc)
        patch.start()
        self.addCleanup(patch.stop)

    def add(self, pid: int, parent: int, ticks: str, pages: int, pss: str = "", name: str = "x") -> None:
        """A process; `ticks` are its utime, stime, cutime and cstime, `pss` is in KiB."""
        folder = os.path.join(self.proc, str(pid))
        os.mkdir(folder)
        with open(os.path.join(folder, "stat"), "w") as stream:
            stream.write(
                "{} ({}) S {} 0 0 0 -1 0 0 0 0 0 {} 20 0 1 0 99 4096 {} 7\n".format(
                    pid, name, parent, ticks, pages
                )
            )
        if pss:
            with open(os.path.join(folder, "smaps_rollup"), "w") as stream:
                stream.write("0-1 ---p 0 00:00 0 [rollup]\nRss: 9999 kB\nPss: {} kB\n".format(pss))

    def test_all_processes_of_a_container_and_no_others(self) -> None:
        self.add(1, 0, "900 900 900 900", 900, "900")  # the runner
        self.add(10, 1, "1 2 4 8", 5, "100")
        self.add(11, 10, "16 32 0 0", 5, "200", name="a) S 1 (b")
        self.add(12, 11, "64 128 0 0", 5, "400")
        self.add(20, 1, "3 0 0 0", 5, "800")
        os.mkdir(os.path.join(self.proc, "13"))  # one that has just ended
        os.mkdir(os.path.join(self.proc, "self"))
        found = usage.take([10, 20, 30])
        self.assertEqual(found, {10: (255 * (1.0 / TICK), 700 * 1024), 20: (3 * (1.0 / TICK), 800 * 1024)})

    def test_resident_size_where_the_proportional_is_not_told(self) -> None:
        self.add(10, 1, "0 0 0 0", 5)
        self.assertEqual(usage.take([10]), {10: (0.0, 5 * PAGE)})

    def test_resident_size_of_a_large_process(self) -> None:
        pages = (1 << 30) // PAGE + 1
        self.add(10, 1, "0 0 0 0", pages, "7")
        self.assertEqual(usage.take([10]), {10: (0.0, pages * PAGE)})


class Records(unittest.TestCase):
    def setUp(self) -> None:
        self.record: Dict[str, Any] = status.waiting("c", False, "/", "", (0, None), [])

    def seen(self) -> Any:
        return tuple(self.record[key] for key in ("cpu_s", "memory_bytes", "memory_peak_bytes"))

    def test_unknown_at_first(self) -> None:
        self.assertEqual(self.seen(), (None, None, None))

    def test_what_is_new_and_what_is_not(self) -> None:
        self.assertTrue(usage.note(self.record, 0.02, 100 * MIB))
        self.assertEqual(self.seen(), (0.02, 100 * MIB, 100 * MIB))
        self.assertFalse(usage.note(self.record, 0.1, 104 * MIB))
        self.assertEqual(self.seen(), (0.02, 100 * MIB, 104 * MIB))
        self.assertTrue(usage.note(self.record, 0.13, 104 * MIB))  # little by little is seen, too
        self.assertTrue(usage.note(self.record, 0.13, 50 * MIB))
        self.assertEqual(self.seen(), (0.13, 50 * MIB, 104 * MIB))

    def test_processor_time_never_becomes_less(self) -> None:
        usage.note(self.record, 5.0, MIB)
        usage.total(self.record, 4.0)
        self.assertEqual(self.record["cpu_s"], 5.0)
        usage.total(self.record, 6.00049)
        self.assertEqual(self.seen(), (6.0, MIB, MIB))


class Ends(unittest.TestCase):
    def test_an_ended_child_tells_its_time_and_that_of_all_below_it(self) -> None:
        ended = []

        def over(pid: int, code: int, seconds: float) -> None:
            ended.append((pid, code, seconds))
            waits.stop()

        waits = loop.Loop(waits_no_more, over)

        def burn() -> None:
            below = os.fork()
            if below == 0:
                while time.process_time() < 0.3:
                    pass
                os._exit(0)
            os.waitpid(below, 0)

        child = process.worker(burn)
        waits.run()
        self.assertEqual([one[:2] for one in ended], [(child, 0)])
        self.assertGreater(ended[0][2], 0.25)


def waits_no_more() -> None:
    raise AssertionError("nobody asked for the end")

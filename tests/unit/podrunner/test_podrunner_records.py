"""What the runner leaves behind: logs in the CRI's format, the status file, the claim."""

import json
import os
import re
import tempfile
import threading
import unittest
from typing import List, Tuple

from slurmrest_adapter.podrunner import logs, status

ENTRY = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([PF]) (.*)$", re.DOTALL)


class Logs(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.path = os.path.join(self._directory.name, "0.log")
        self.log = logs.CriLog(self.path)

    def entries(self) -> List[Tuple[bytes, bytes, bytes]]:
        self.log.close()
        return self.entries_of_file()

    def entries_of_file(self) -> List[Tuple[bytes, bytes, bytes]]:
        with open(self.path, "rb") as stream:
            lines = stream.read().split(b"\n")
        self.assertEqual(lines.pop(), b"")
        found = []
        for line in lines:
            match = ENTRY.match(line)
            assert match is not None, line
            found.append((match.group(1), match.group(2), match.group(3)))
        return found

    def given_back(self, stream: bytes) -> bytes:
        return b"".join(
            text + (b"\n" if tag == b"F" else b"") for name, tag, text in self.entries() if name == stream
        )

    def test_whole_lines(self) -> None:
        self.log.feed("stdout", b"one\ntwo\n\n")
        self.log.feed("stderr", b"bad\n")
        self.assertEqual(
            self.entries(),
            [
                (b"stdout", b"F", b"one"),
                (b"stdout", b"F", b"two"),
                (b"stdout", b"F", b""),
                (b"stderr", b"F", b"bad"),
            ],
        )

    def test_a_line_in_pieces_is_one_line(self) -> None:
        self.log.feed("stdout", b"he")
        self.log.feed("stderr", b"x\n")
        self.log.feed("stdout", b"llo\nwor")
        self.log.feed("stdout", b"ld")
        self.assertEqual(
            self.entries(),
            [(b"stderr", b"F", b"x"), (b"stdout", b"F", b"hello"), (b"stdout", b"P", b"world")],
        )

    def test_long_lines_are_cut(self) -> None:
        text = b"x" * (2 * logs.PIECE) + b"y"
        self.log.feed("stdout", text + b"\n")
        entries = self.entries()
        self.assertEqual([tag for _, tag, _ in entries], [b"P", b"P", b"F"])
        self.assertTrue(all(len(piece) <= logs.PIECE for _, _, piece in entries))
        self.assertEqual(b"".join(piece for _, _, piece in entries), text)

    def test_a_long_line_among_short_ones(self) -> None:
        for long in (logs.PIECE - 1, logs.PIECE, logs.PIECE + 1, 3 * logs.PIECE):
            with self.subTest(long=long):
                self.setUp()
                text = b"a\n" * logs.PIECE + b"x" * long + b"\n" + b"b\n" * logs.PIECE
                self.log.feed("stdout", text)
                self.assertEqual(self.given_back(b"stdout"), text)
                self.assertTrue(all(len(piece) <= logs.PIECE for _, _, piece in self.entries_of_file()))

    def test_exactly_one_piece(self) -> None:
        self.log.feed("stdout", b"z" * logs.PIECE + b"\n")
        self.assertEqual([tag for _, tag, _ in self.entries()], [b"F"])

    def test_any_bytes_come_back(self) -> None:
        data = bytes(bytearray(range(256))) * 300 + b"\r\n\xff\xfe" + b"no newline at the end"
        for start in range(0, len(data), 1000):
            self.log.feed("stdout", data[start : start + 1000])
        self.assertEqual(self.given_back(b"stdout"), data)

    def test_flush_keeps_the_bytes(self) -> None:
        self.log.feed("stdout", b"prompt> ")
        self.log.flush()
        self.log.feed("stdout", b"answer\n")
        self.assertEqual(self.given_back(b"stdout"), b"prompt> answer\n")

    def test_mode_and_links(self) -> None:
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        link = os.path.join(self._directory.name, "link")
        os.symlink(self.path, link)
        with self.assertRaises(OSError):
            logs.CriLog(link)


class Records(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.directory = self._directory.name

    def make(self) -> status.Status:
        return status.Status(self.directory, "u", {"id": "5", "node": "n", "restart": 0, "gpus": []}, "3.6")

    def test_a_reader_never_sees_half_of_it(self) -> None:
        record = self.make()
        record.containers = [status.waiting("c", False, "i" * 50000, "Pulling", (0, None), [])]
        record.write()
        stop = threading.Event()
        seen = []
        broken = []

        def look() -> None:
            while not stop.is_set():
                try:
                    with open(os.path.join(self.directory, "status.json")) as stream:
                        seen.append(json.load(stream)["seq"])
                except ValueError as error:
                    broken.append(error)

        reader = threading.Thread(target=look)
        reader.start()
        for _ in range(200):
            record.write()
        stop.set()
        reader.join()
        self.assertEqual(broken, [])
        self.assertEqual(seen, sorted(seen))
        self.assertEqual(sorted(os.listdir(self.directory)), ["status.json"])

    def test_it_is_json_whatever_it_says(self) -> None:
        texts = ["", "plain", 'quo"ted\\', "\0\n\x1f\x7f", "\u00e9\u2603\U0001d11e", "\udc80\ud800"]
        value = {"a": texts, 'b"': {"c": None, "d": [True, False, 0, -1, 1796082495.965, ()]}}
        self.assertEqual(json.loads(status.encode(value).decode("utf-8")), json.loads(json.dumps(value)))

    def test_seq_goes_on_over_a_requeue(self) -> None:
        first = self.make()
        first.write()
        first.write()
        second = self.make()
        second.write()
        self.assertEqual(second.record()["seq"], 3)

    def test_what_a_container_was_before_a_requeue(self) -> None:
        first = self.make()
        one = status.waiting("ended", False, "i", "", (0, None), [])
        one.update(state="terminated", exit_code=3, reason="Error", started_at=1.0, finished_at=2.0)
        two = status.waiting("ran", False, "i", "", (1, None), [])
        two.update(state="running", started_at=3.0)
        waits = {**dict.fromkeys(status.RUN), "exit_code": 4, "reason": "Error", "started_at": 1.0}
        three = status.waiting("waits", False, "i", "CrashLoopBackOff", (2, waits), [])
        first.containers = [one, two, three, status.waiting("never", False, "i", "", (0, None), [])]
        first.write()
        self.assertEqual(self.make().before("ended"), (0, None))  # no requeue: another pod's file
        again = status.Status(self.directory, "u", {"id": "5", "node": "n", "restart": 1, "gpus": []}, "3.6")
        count, last = again.before("ended")
        self.assertEqual((count, last and last["exit_code"], last and last["reason"]), (1, 3, "Error"))
        count, last = again.before("ran")
        self.assertEqual((count, last and last["exit_code"]), (2, 137))
        self.assertEqual(last and last["reason"], "ContainerStatusUnknown")
        self.assertEqual(again.before("waits"), (3, waits))
        self.assertEqual(again.before("never"), (0, None))
        self.assertEqual(again.before("unknown"), (1, None))

    def test_closed_to_others(self) -> None:
        self.make().write()
        self.assertEqual(os.stat(os.path.join(self.directory, "status.json")).st_mode & 0o777, 0o600)

    def test_only_one_job_has_the_pod(self) -> None:
        self.assertIsNone(status.claim(self.directory, "5"))
        self.assertEqual(status.claim(self.directory, "6"), "5")
        self.assertIsNone(status.claim(self.directory, "5"))  # the same job, requeued
        with open(os.path.join(self.directory, "claim")) as stream:
            self.assertEqual(stream.read(), "5\n")
        self.assertEqual(os.listdir(self.directory), ["claim"])

    def test_of_many_at_once_one_wins(self) -> None:
        answers = []
        start = threading.Barrier(8)

        def contend(job: str) -> None:
            start.wait()
            answers.append(status.claim(self.directory, job))

        threads = [threading.Thread(target=contend, args=(str(job),)) for job in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len([answer for answer in answers if answer is None]), 1)
        self.assertEqual(len({answer for answer in answers if answer is not None}), 1)

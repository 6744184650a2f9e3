"""Starting programs exactly: how they are found, the first process, the driver's files."""

import os
import signal
import struct
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, Tuple

from slurmrest_adapter.podrunner import assemble, container, exact, first, nvidia, process


def ended(body: Any) -> process.Ended:
    """How a child ends that runs `body`; 99 if `body` returns."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except container.CannotRun as problem:
            os._exit(problem.code)
        finally:
            os._exit(99)
    return process.decode(os.waitpid(pid, 0)[1])


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.path = self._directory.name
        self.file("data", 0o644, "x")
        self.file("script", 0o755, "#!/bin/sh\nexit 7\n")
        self.file("text", 0o755, "exit 7\n")
        self.file("lost", 0o755, "#!/no/such/interpreter\n")

    def file(self, name: str, mode: int, text: str) -> None:
        path = os.path.join(self.path, name)
        with open(path, "w") as stream:
            stream.write(text)
        os.chmod(path, mode)

    def code(self, argv: List[str], **env: str) -> int:
        given: Dict[str, str] = {"PATH": "/nowhere:" + self.path}
        given.update(env)
        return ended(lambda: exact.execute(argv, given)).code

    def test_codes_are_a_shells(self) -> None:
        self.assertEqual(self.code(["script"]), 7)
        self.assertEqual(self.code([self.path + "/script"]), 7)
        self.assertEqual(self.code(["no-such"]), 127)
        self.assertEqual(self.code([""]), 127)
        self.assertEqual(self.code(["script"], PATH="/nowhere"), 127)
        self.assertEqual(self.code(["/no/such"]), 127)
        self.assertEqual(self.code([self.path + "/script/x"]), 127)
        self.assertEqual(self.code([self.path + "/lost"]), 127)
        self.assertEqual(self.code([self.path]), 126)
        self.assertEqual(self.code(["text"]), 126)
        self.assertEqual(self.code(["script", "x" * 200000]), 128)

    @unittest.skipIf(os.getuid() == 0 and not os.path.exists("/proc/self"), "needs /proc")
    def test_what_is_not_executable(self) -> None:
        self.assertEqual(self.code(["data"]), 126)

    def test_any_bytes_and_nothing_else(self) -> None:
        value = "\r\n'\"\\ \u00e9\U0001d11e\x81"
        reader, writer = os.pipe()

        def body() -> None:
            os.dup2(writer, 1)
            os.set_inheritable(1, True)
            exact.execute(["cat", "/proc/self/environ"], {"a.b": value, "PATH": os.defpath, "UID": ""})

        self.assertEqual(ended(body).code, 0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            pairs = stream.read().decode("utf-8").split("\0")
        self.assertEqual(sorted(pairs[:-1]), sorted(["a.b=" + value, "PATH=" + os.defpath, "UID="]))


class FirstProcess(unittest.TestCase):
    def test_a_machine_without_it(self) -> None:
        self.assertIsNone(first.program("pdp11"))

    def test_headers(self) -> None:
        for machine, number in (("x86_64", 62), ("aarch64", 183)):
            text = first.program(machine) or b""
            self.assertEqual(text[:4], b"\x7fELF")
            self.assertEqual(struct.unpack_from("<HH", text, 16), (2, number))
            self.assertEqual(struct.unpack_from("<QQ", text, 64 + 32), (len(text), len(text)))

    def test_it_ends_when_nothing_is_left_to_wait_for(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            executable = first.prepare(os.path.join(directory, "init"))
            if executable < 0:
                self.skipTest("no such program for this machine")
            again = first.prepare(os.path.join(directory, "init"))
            os.close(again)
            self.assertEqual(ended(lambda: os.execve(executable, ["init"], {})).code, 0)
            os.close(executable)

    def test_it_is_written_before_there_is_a_child(self) -> None:
        """Children of one moment would write it over each other, and each is number 1 to itself."""
        with tempfile.TemporaryDirectory() as directory:
            if first.program() is None:
                self.skipTest("no such program for this machine")
            init = os.path.join(directory, "missing", "init")
            start = container.Start(["true"], {"HOME": "/"}, "/", "/", False, [])
            place = assemble.Place("/", directory, init, None, True, "/dev", "", True, [])
            before = os.listdir("/proc/self/fd")
            with self.assertRaises(FileNotFoundError):
                exact.spawn(start, place, 1, 2)
            self.assertEqual(os.listdir("/proc/self/fd"), before)


class Relay(unittest.TestCase):
    """The program in place of the processes around the sandbox."""

    def relayed(self, child: Callable[[], None], signals: int = 0) -> Tuple[process.Ended, bytes]:
        """How it ends that waits for `child`, which goes on after the signals; and what it wrote."""
        if first.relay(1) is None:
            self.skipTest("no such program for this machine")
        target, writer = os.pipe()
        go, start = os.pipe()

        def body() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, first.RELAYED)
            pid = os.fork()
            if pid == 0:
                os.read(go, 1)
                child()
            first.become_relay(pid, writer)

        pid = os.fork()
        if pid == 0:
            body()
            os._exit(99)
        os.close(writer)
        while os.readlink("/proc/{}/exe".format(pid)) == os.readlink("/proc/self/exe"):
            time.sleep(0.01)
        for _ in range(signals):
            os.kill(pid, signal.SIGTERM)
        heard = os.read(target, 1) if signals else b""
        os.write(start, b"x")
        status = os.waitpid(pid, 0)[1]
        for descriptor in (target, go, start):
            os.close(descriptor)
        return process.decode(status), heard

    def test_the_childs_own_code(self) -> None:
        self.assertEqual(self.relayed(lambda: os._exit(7)), (process.Ended(7, None), b""))

    def test_the_childs_signal(self) -> None:
        ended, _ = self.relayed(lambda: os.kill(os.getpid(), signal.SIGKILL))
        self.assertEqual(ended, process.Ended(137, None))

    def test_term_is_passed_on(self) -> None:
        self.assertEqual(self.relayed(lambda: os._exit(0), 1), (process.Ended(0, None), b"T"))

    def test_headers(self) -> None:
        for machine in ("x86_64", "aarch64"):
            text = first.relay(0x11223344, machine) or b""
            self.assertEqual(text[-4:], b"\x44\x33\x22\x11")
            self.assertEqual(struct.unpack_from("<QQ", text, 64 + 32), (len(text), len(text)))
            other = first.relay(0x11223344, machine, b"S") or b""
            self.assertEqual(
                [(a, b) for a, b in zip(text, other) if a != b],  # noqa: B905  3.6
                [(ord("T"), ord("S"))],
            )
        self.assertIsNone(first.relay(1, "pdp11"))

    def test_one_that_only_listens(self) -> None:
        if first.relay(1) is None:
            self.skipTest("no such program for this machine")
        target, writer = os.pipe()
        pid = process.worker(lambda: first.listen(writer))
        os.close(writer)
        while os.readlink("/proc/{}/exe".format(pid)) == os.readlink("/proc/self/exe"):
            time.sleep(0.01)
        for _ in range(2):
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(os.read(target, 9), b"S")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(process.decode(os.waitpid(pid, 0)[1]), process.Ended(137, 9))
        self.assertEqual(os.read(target, 9), b"")  # it was the only writer
        os.close(target)


class Reports(unittest.TestCase):
    def outcome(self, report: bytes, status: int = 0) -> process.Ended:
        reader, writer = os.pipe()
        os.write(writer, report)
        os.close(writer)
        return exact.ended(exact.Container(1, reader), status)

    def test_a_true_status(self) -> None:
        self.assertEqual(self.outcome(struct.pack("<i", 3 << 8)), process.Ended(3, None))
        self.assertEqual(self.outcome(struct.pack("<i", 15)), process.Ended(143, 15))

    def test_killed_as_a_whole(self) -> None:
        self.assertEqual(self.outcome(b"", 9), process.Ended(137, 9))

    def test_what_never_began(self) -> None:
        for report in (b"E126 no\0\0\1\0\0", b""):
            with self.assertRaises(container.CannotRun) as caught:
                self.outcome(report, 256)
            self.assertEqual(caught.exception.code, 126 if report else 128)


class Drivers(unittest.TestCase):
    LOADER = (
        "2 libs found in cache\n"
        "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n"
        "\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1\n"
        "\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6\n"
    )

    def test_libraries_and_programs_of_the_list(self) -> None:
        mounts = nvidia.found(["libcuda.so", "env", "no-such-program"], self.LOADER)
        targets = [(each.target, each.read_only) for each in mounts]
        self.assertEqual(targets, [("/.singularity.d/libs/libcuda.so.1", True), ("/usr/bin/env", True)])
        self.assertIn("x86_64", mounts[0].source)

    def test_none_without_gpus(self) -> None:
        env: Dict[str, str] = {}
        self.assertEqual((nvidia.bring(env, []), env), ([], {}))

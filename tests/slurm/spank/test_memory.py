"""The plugin's code paths under valgrind, its parsers under the sanitizers, its digests beside Python's."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.spank_receiver import Receiver
from tests.slurm.spank.conftest import Site, headers
from tests.slurm.spank.fake import MEMCHECK, STEPD, Done, FakeSlurm, compile_fake, compile_fuzzer

pytestmark = pytest.mark.slurm
KEY = bytes(range(48))
HOSTILE = ["%41" * 4096, '"; rm -rf / #', "a%0Ab", "%25n%25s%25n", "%C3%A9", "-", ".."]


@pytest.fixture(scope="session")
def include(sites: dict[str, Site]) -> Path:
    """One release's headers: the plugin's own code is the same with the other's."""
    return headers(sites["26.05"])


@pytest.fixture
def fake(compiler: str, include: Path, plugin: Path, tmp_path: Path) -> FakeSlurm:
    """Processes with the plugin; the sidecar's address is a unix socket where nobody listens yet."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(KEY)
    arguments = {
        "cluster": "lab",
        "events": f"unix://{tmp_path}/sock",
        "key_file": str(key),
        "spool": str(tmp_path / "spool"),
        "report": "all",
        # Valgrind is slow.
        "timeout_ms": "150",
    }
    return FakeSlurm(compile_fake(compiler, include, tmp_path), plugin, arguments)


@pytest.fixture
def checked(fake: FakeSlurm) -> FakeSlurm:
    """The same under valgrind, which takes a second for each process."""
    fake.prefix = MEMCHECK
    return fake


@pytest.fixture
def receiver(fake: FakeSlurm) -> Iterator[Receiver]:
    with Receiver(fake.arguments["events"], KEY) as made:
        yield made


def clean(done: Done) -> None:
    """No error, no leak, no descriptor left, nothing that fails a job, no line without the plugin's name."""
    assert done.code == 0, done.err
    # valgrind lists what the process inherited, too.
    opened = [part for part in done.err.split("Open ")[1:] if "<inherited from parent>" not in part]
    assert not opened, done.err
    assert done.calls
    assert set(done.calls.values()) == {"0"}
    assert all(line.split(" ", 1)[1].startswith("slurmrest_adapter: ") for line in done.log), done.log


def spooled(tmp_path: Path) -> list[dict[str, object]]:
    """The events in the spool, each with a true signature."""
    found = []
    for path in sorted((tmp_path / "spool").glob("[!.]*.event")):
        signature, body = path.read_bytes().split(b"\n", 1)
        assert signature.decode() == "sha256=" + hmac.new(KEY, body, hashlib.sha256).hexdigest()
        event = json.loads(body)
        assert path.name.split("-", 1)[1] == f"{event['stream']}-{event['seq']:06}.event"
        found.append(event)
    return found


def test_a_job_with_a_receiver(checked: FakeSlurm, receiver: Receiver, tmp_path: Path) -> None:
    option = "option pod-uid a-pod"
    done = [checked.script("job_prolog", option), checked.stepd(), checked.script("job_epilog", option)]
    for one in done:
        clean(one)
    events = receiver.events() + spooled(tmp_path)  # under valgrind even a good answer may be too late
    assert sorted(str(event["event"]) for event in events) == [
        "allocated", "released", "step_end", "step_start", "task_exit", "task_start",
    ]  # fmt: skip
    # The step had no option of its own: the prolog has told it.
    assert {event["pod"] for event in events} == {"a-pod"}
    assert all(event["gpus"] == [0, 2] for event in events)
    assert not list((tmp_path / "spool/jobs").iterdir())


def test_the_receiver_is_away(checked: FakeSlurm, tmp_path: Path) -> None:
    clean(checked.script("job_prolog"))
    clean(checked.stepd())
    clean(checked.script("job_epilog"))
    assert [event["event"] for event in spooled(tmp_path)] == [
        "allocated", "step_start", "task_start", "task_exit", "step_end", "released",
    ]  # fmt: skip
    assert oct((tmp_path / "spool").stat().st_mode) == "0o40700"


ANSWERS = {
    "garbage": b"\x00\xff" * 300,
    "half": b"HTTP/1.1 20",
    "long": b"HTTP/1.1 204 No Content\r\n" + b"X: y\r\n" * 2000,
    "odd": b"HTTP/1.1 999 what\r\n\r\n",
    "later": b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
    "moved": b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", [*ANSWERS, "swallow", "reset"])
def test_receivers_that_misbehave(checked: FakeSlurm, tmp_path: Path, name: str) -> None:
    with _misbehaving(checked.arguments["events"].removeprefix("unix://"), name):
        clean(checked.stepd())
    expected = [] if name == "long" else ["step_start", "task_start", "task_exit", "step_end"]
    # Whatever the answer, no event is lost; those that valgrind made late are in the spool as well.
    assert [e["event"] for e in spooled(tmp_path) if name != "long"] == expected


class _misbehaving:
    """Accepts connections and answers wrongly, or not at all."""

    def __init__(self, path: str, name: str) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self._name = name
        self._kept: list[socket.socket] = []

    def __enter__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def __exit__(self, *exc: object) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._name == "swallow":
                self._kept.append(client)
                continue
            if self._name != "reset":  # closed with the request unread
                client.recv(65536)
                client.sendall(ANSWERS[self._name])
            client.close()


TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
LAST = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
WORDY = b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\n{}"
FULL = ANSWERS["later"]
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
NEVER = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


# Alone, as are the next: an answer that is late beside other tests is no answer.
@pytest.mark.disruptive
@pytest.mark.parametrize(
    ("answers", "posted", "kept"),
    [
        # One connection for what is told together: a step's and its task's beginning, and both ends.
        ([TAKEN + LAST] * 2, [2, 2], []),
        ([WORDY + WORDY] * 2, [2, 2], []),
        # Who closes behind the first answer is asked again for the second.
        ([LAST, LAST] * 2, [2, 1, 2, 1], []),
        ([WORDY, NEVER] * 2, [2, 1, 2, 1], []),
        ([TAKEN + LAST, LAST, b""], [2, 2, 1], ["step_end"]),
        ([TAKEN + FULL, TAKEN + LAST], [2], ["task_start", "task_exit", "step_end"]),
        ([TAKEN + b"nonsense, and much of it", TAKEN, TAKEN + LAST], [2, 1, 2], []),
        ([FULL + TAKEN], [2], ["step_start", "task_start", "task_exit", "step_end"]),
        ([NEVER + TAKEN, TAKEN + NEVER], [2, 2], []),
        # A length that cannot be: nothing behind it is read as an answer.
        ([LONG + TAKEN, TAKEN, TAKEN + TAKEN], [2, 1, 2], []),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + TAKEN, TAKEN, TAKEN + TAKEN], [2, 1, 2], []),
    ],
)  # fmt: skip
def test_two_events_over_one_connection(
    fake: FakeSlurm, tmp_path: Path, answers: list[bytes], posted: list[int], kept: list[str]
) -> None:
    with _scripted(fake.arguments["events"].removeprefix("unix://"), answers) as seen:
        clean(fake.stepd())
    assert [len(each) for each in seen] == posted
    assert [event["event"] for event in spooled(tmp_path)] == kept


@pytest.mark.parametrize("answers", [[TAKEN + LAST] * 2, [LAST] * 4, [WORDY + FULL, LONG + TAKEN]])
def test_two_events_over_one_connection_under_valgrind(checked: FakeSlurm, answers: list[bytes]) -> None:
    with _scripted(checked.arguments["events"].removeprefix("unix://"), answers):
        clean(checked.stepd())


@pytest.mark.disruptive
def test_events_that_are_told_together_come_in_their_order(fake: FakeSlurm, tmp_path: Path) -> None:
    with _scripted(fake.arguments["events"].removeprefix("unix://"), [TAKEN + LAST] * 2) as seen:
        clean(fake.stepd())
    told = [json.loads(one.split(b"\r\n\r\n")[1]) for each in seen for one in each]
    assert [event["event"] for event in told] == ["step_start", "task_start", "task_exit", "step_end"]
    assert [event["seq"] for event in told] == [1, 2, 3, 4]
    assert [b"Connection: close" in one for each in seen for one in each] == [False, True] * 2


@pytest.mark.disruptive
@pytest.mark.parametrize(
    ("changes", "together"),
    [
        (["item tasks 2"], [["step_start", "task_start"], ["task_exit"], ["step_end"]]),
        (["without tasks"], [["step_start", "task_start"], ["task_exit"], ["step_end"]]),
        # Nothing follows for as long as the job runs.
        (["item step 4294967292"], [["step_start"], ["task_start"], ["task_exit"], ["step_end"]]),
    ],
)
def test_what_may_have_to_wait_for_long_is_told_at_once(
    fake: FakeSlurm, changes: list[str], together: list[list[str]]
) -> None:
    with _scripted(fake.arguments["events"].removeprefix("unix://"), [TAKEN + LAST] * 4) as seen:
        clean(fake.stepd(*changes))
    found = [[json.loads(one.split(b"\r\n\r\n")[1])["event"] for one in each] for each in seen]
    assert found == together


class _scripted:
    """Answers each connection's first packet with the next of the answers; what each brought, by requests."""

    def __init__(self, path: str, answers: list[bytes]) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self.seen: list[list[bytes]] = []

    def __enter__(self) -> list[list[bytes]]:
        self._thread.start()
        return self.seen

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                data = client.recv(65536)
                self.seen.append([b"POST" + one for one in data.split(b"POST /")[1:]])
                client.sendall(self._answers[len(self.seen) - 1])


@pytest.mark.parametrize("status", [400, 403, 413])
def test_what_the_sidecar_will_never_take_is_not_kept(
    fake: FakeSlurm, receiver: Receiver, tmp_path: Path, status: int
) -> None:
    receiver.answer = lambda: status
    done = fake.script("job_prolog")
    assert done.calls == {"job_prolog": "0"}
    assert spooled(tmp_path) == []
    assert any(f"answers {status}" in line for line in done.log)


BAD_LINES: dict[str, dict[str, str | None]] = {
    "cluster: missing": {"cluster": None},
    "events: missing": {"events": None},
    "key_file: missing": {"key_file": None},
    'cluster: not a cluster\'s name: "a b?"': {"cluster": "a b\n"},
    "events: not http://HOST:PORT/PATH": {"events": "https://127.0.0.1:1/"},
    "events: HOST is neither an address nor in /etc/hosts": {"events": "http://no-such-host.invalid:80/"},
    "events: a unix socket is": {"events": "unix://relative"},
    "key_file: not an absolute path": {"key_file": "key"},
    "key_file /nowhere: No such file": {"key_file": "/nowhere"},
    "key_file /dev/null: not a regular file": {"key_file": "/dev/null"},
    "spool_max: not a number from 1": {"spool_max": "-1"},
    "timeout_ms: not a number from 1 to 150": {"timeout_ms": "9" * 4096},
    "retry_s: not a number": {"retry_s": "1e3"},
    "report: neither option nor all": {"report": "%n%n%n"},
    "plugstack.conf: no such argument": {"colour": "blue"},
}


@pytest.mark.parametrize("words", list(BAD_LINES))
def test_a_bad_line_is_named_and_nothing_is_done(fake: FakeSlurm, tmp_path: Path, words: str) -> None:
    done = fake.run([*fake.lines("slurmd", **BAD_LINES[words]), "call init"])
    clean(done)
    [line] = done.log
    assert line.startswith(f"error slurmrest_adapter: {words}")
    assert line.endswith("; nothing is reported")
    for one in (fake.script("job_prolog", **BAD_LINES[words]), fake.stepd(**BAD_LINES[words])):
        assert set(one.calls.values()) == {"0"}
    assert not (tmp_path / "spool").exists()


def test_all_bad_lines_and_values_in_one_process(checked: FakeSlurm) -> None:
    lines = []
    for changes in BAD_LINES.values():
        lines += [*checked.lines("slurmd", **changes), "call init"]
        lines += [*checked.lines("job_script", **changes), "call job_prolog"]
    for value in HOSTILE:
        lines += [*checked.lines("remote"), "call init", f"say pod-uid {value}", f"say pod-events {value}"]
        lines += [*(f"call {name}" for name in STEPD[1:])]
        said = [f"option pod-uid {value}", f"option pod-events {value}"]
        lines += [*checked.lines("job_script", *said), "call job_prolog", "call job_epilog"]
    done = checked.run(lines)
    clean(done)
    assert len(done.log) > 2 * len(BAD_LINES)


@pytest.mark.parametrize(
    ("mode", "length", "words"),
    [
        (0o640, 48, "group or others have access"),
        (0o604, 48, "group or others have access"),
        (0o600, 31, "32 to 4096 bytes"),
        (0o600, 4097, "32 to 4096 bytes"),
    ],
)
def test_a_key_that_is_no_secret_is_refused(fake: FakeSlurm, mode: int, length: int, words: str) -> None:
    key = Path(fake.arguments["key_file"])
    key.write_bytes(b"k" * length)
    key.chmod(mode)
    done = fake.run([*fake.lines("slurmd"), "call init"])
    assert words in done.log[0]


def test_somebody_elses_key_is_refused(fake: FakeSlurm) -> None:
    os.chown(fake.arguments["key_file"], 2001, 2001)
    assert "not owned by root" in fake.run([*fake.lines("slurmd"), "call init"]).log[0]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_options(fake: FakeSlurm, tmp_path: Path, value: str) -> None:
    said = [f"say pod-uid {value}", f"say pod-events {value}"]
    done = fake.run([*fake.lines("remote"), "call init", *said, *(f"call {name}" for name in STEPD[1:])])
    clean(done)
    prolog = fake.script("job_prolog", f"option pod-uid {value}", f"option pod-events {value}")
    clean(prolog)
    for event in spooled(tmp_path):
        assert event.get("pod") in (None, "-")
    assert all(len(line) < 300 for line in done.log)


@pytest.mark.parametrize("gone", ["job", "uid", "step", "tasks", "task", "status", "pid", "array_job"])
def test_items_that_slurm_does_not_tell(fake: FakeSlurm, gone: str) -> None:
    clean(fake.stepd(f"without {gone}"))
    clean(fake.script("job_prolog", f"without {gone}"))


def test_a_full_spool_drops_the_oldest_and_says_so(checked: FakeSlurm, tmp_path: Path) -> None:
    for _ in range(3):
        clean(checked.stepd(spool_max="5"))
    kept = spooled(tmp_path)
    assert [event["event"] for event in kept][-4:] == ["step_start", "task_start", "task_exit", "step_end"]
    assert len(kept) == 5
    assert (tmp_path / "spool/dropped").read_text() == "7\n"
    assert kept[-1]["dropped"] == 5  # what was dropped before it was made, and task_exit waited for it


@pytest.mark.parametrize("what", ["file", "open", "link", "no parent"])
def test_a_spool_that_cannot_be_used(fake: FakeSlurm, tmp_path: Path, what: str) -> None:
    spool = tmp_path / "spool"
    if what == "file":
        spool.touch()
    elif what == "open":
        spool.mkdir(mode=0o777)
        spool.chmod(0o777)
    elif what == "link":
        spool.symlink_to(tmp_path)
    else:
        fake.arguments["spool"] = str(tmp_path / "none/spool")
    done = fake.stepd()
    clean(done)
    assert any("what cannot be delivered is lost" in line for line in done.log)
    # Said once, not for each event.
    assert len([line for line in done.log if "is lost" in line and "spool" in line]) == 1


def test_sigpipe_does_not_kill_and_is_not_touched(fake: FakeSlurm) -> None:
    with _misbehaving(fake.arguments["events"].removeprefix("unix://"), "reset"):
        fake.prefix = ["env", "--default-signal=PIPE"]
        done = fake.stepd()
    assert done.code == 0


def test_control_groups_are_read_where_there_are_any(fake: FakeSlurm, tmp_path: Path) -> None:
    clean(fake.stepd())
    used = spooled(tmp_path)[-1]
    # No child has ended and there is no group of Slurm's: unknown, and so absent.
    assert used["event"] == "step_end"
    assert "cpu_s" not in used
    assert "peak_bytes" not in used


def test_no_key_is_left_in_memory(fake: FakeSlurm) -> None:
    """After each callback, which is when slurmstepd forks the user's processes, no page holds the key."""
    process = subprocess.Popen(
        [str(fake.program), str(fake.plugin)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n".join([*fake.lines("remote"), f"process CONTROL={KEY[:16].hex()}"]) + "\n")
    for name in STEPD:
        process.stdin.write(f"call {name}\n")
        process.stdin.flush()
        while not process.stdout.readline().startswith(f"call {name}"):
            pass
        memory = _memory(process.pid)
        assert KEY[:16].hex().encode() in memory  # the search finds what is there
        assert KEY[8:40] not in memory, name
        # Nor what HMAC makes of it.
        assert bytes(byte ^ 0x36 for byte in KEY[8:40]) not in memory, name
        assert bytes(byte ^ 0x5C for byte in KEY[8:40]) not in memory, name
    process.stdin.close()
    assert process.wait(30) == 0


def _memory(pid: int) -> bytes:
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if "w" in rights:
                begin, end = (int(part, 16) for part in span.split("-"))
                memory.seek(begin)
                found.append(memory.read(end - begin))
    return b"\n".join(found)


def test_digests_are_those_of_python(compiler: str, include: Path, tmp_path: Path) -> None:
    fuzzer = compile_fuzzer(compiler, include, tmp_path)
    chance = random.Random(4)
    # RFC 4231, cases 1, 2, 6; then every length around the block's.
    pairs = [
        (b"\x0b" * 20, b"Hi There"),
        (b"Jefe", b"what do ya want for nothing?"),
        (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First"),
        *(
            (chance.randbytes(k), chance.randbytes(d))
            for k in (1, 32, 63, 64, 65, 200)
            for d in range(0, 200, 3)
        ),
        (chance.randbytes(4096), chance.randbytes(4095)),
    ]
    lines = "".join(f"{key.hex()} {data.hex() or '-'}\n" for key, data in pairs)
    printed = subprocess.run([fuzzer, "hmac"], input=lines, capture_output=True, text=True, check=True).stdout
    assert printed.split() == [hmac.new(key, data, hashlib.sha256).hexdigest() for key, data in pairs]
    assert printed.startswith("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")


Fuzz = Callable[[int], None]


@pytest.fixture
def fuzz(compiler: str, include: Path, tmp_path: Path) -> Fuzz:
    fuzzer = compile_fuzzer(compiler, include, tmp_path)

    def run(seconds: int) -> None:
        seed = int.from_bytes(os.urandom(4), "big")
        done = subprocess.run([fuzzer, str(seconds), str(seed)], capture_output=True, text=True)
        said = "a signal" if done.returncode == -signal.SIGABRT else str(done.returncode)
        assert done.returncode == 0, f"seed {seed}: {said}: {done.stderr[-4000:]}"
        assert int(done.stdout.split()[0]) > 1000 * seconds / 10
        print(f"seed {seed}: {done.stdout.strip()}")

    return run


def test_fuzz_the_parsers(fuzz: Fuzz) -> None:
    fuzz(5)


@pytest.mark.soak
def test_fuzz_the_parsers_for_a_minute(fuzz: Fuzz) -> None:
    fuzz(60)

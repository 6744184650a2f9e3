"""Files of users are opened as if each were a trap."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.states import classify
from slurmrest_adapter.podrunner import status as writer
from slurmrest_adapter.podrunner import usage
from slurmrest_adapter.sources.runner import LIMIT, read_status
from slurmrest_adapter.sources.userfiles import UntrustedFile, open_file, read_file
from slurmrest_adapter.tracking.machine import JobSeen, RunnerSeen, Tracked, step
from slurmrest_adapter.translate.status import Facts, pod_status

UID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
ME = os.geteuid()
ROOT_ONLY = pytest.mark.skipif(ME != 0, reason="only root can give files away")


def read(root: Path, *parts: str, owner: int | None = ME, limit: int = 100) -> bytes | None:
    return read_file(root, parts, owner, limit)


def test_a_plain_file(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "log").write_bytes(b"hello")
    assert read(tmp_path, "pod", "log") == b"hello"
    assert read(tmp_path, "pod", "log", limit=5) == b"hello"


def test_what_is_not_there_yet_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "pod", "log") is None
    assert read(tmp_path / "nowhere", "log") is None


def test_a_link_to_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/etc/passwd")
    with pytest.raises(UntrustedFile):
        read(tmp_path, "log")


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "log").write_bytes(b"x")
    (tmp_path / "logs").symlink_to("real")
    with pytest.raises(UntrustedFile):
        read(tmp_path, "logs", "log")


def test_a_link_that_leads_nowhere_is_no_absent_file(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("nowhere")
    with pytest.raises(UntrustedFile):
        read(tmp_path, "log")


def test_a_second_name_of_somebody_elses_file(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"x")
    (tmp_path / "log").hardlink_to(tmp_path / "theirs")
    with pytest.raises(UntrustedFile, match="more than one name"):
        read(tmp_path, "log")


def test_a_fifo_does_not_make_us_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(UntrustedFile, match="no regular file"):
        read(tmp_path, "log")


def test_a_socket_and_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("log")
        with pytest.raises(UntrustedFile):
            read(tmp_path, "log")
    (tmp_path / "dir").mkdir()
    with pytest.raises(UntrustedFile):
        read(tmp_path, "dir")


def test_another_owner(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x")
    with pytest.raises(UntrustedFile, match="belongs to uid"):
        read(tmp_path, "log", owner=ME + 1)
    assert read(tmp_path, "log", owner=None) == b"x"


@ROOT_ONLY
def test_a_file_of_the_jobs_user_read_by_root(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x")
    os.chown(tmp_path / "log", 1001, 1001)
    assert read(tmp_path, "log", owner=1001) == b"x"
    with pytest.raises(UntrustedFile):
        read(tmp_path, "log", owner=0)


def test_too_large_is_refused_not_cut(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 101)
    with pytest.raises(UntrustedFile, match="larger than 100 bytes"):
        read(tmp_path, "log")


@pytest.mark.parametrize("part", ["..", ".", "", "a/b", "/etc", "a\0b"])
def test_no_way_out(tmp_path: Path, part: str) -> None:
    with pytest.raises(UntrustedFile):
        read(tmp_path, part, "log")
    with pytest.raises(UntrustedFile):
        read(tmp_path, "pod", part)


def test_descriptors_are_not_leaked(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/etc/passwd")
    (tmp_path / "good").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        with pytest.raises(UntrustedFile):
            open_file(tmp_path, ("log",), ME)
        with pytest.raises(UntrustedFile):
            open_file(tmp_path, ("good",), ME + 1)
        open_file(tmp_path, ("nowhere", "x"), ME)
        read(tmp_path, "good")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# The runner's status


def put(root: Path, content: bytes | str | Any) -> None:
    (root / "pod").mkdir(exist_ok=True)
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    (root / "pod" / "status.json").write_bytes(content)


def good(**fields: Any) -> dict[str, Any]:
    container = writer.waiting("main", False, "busybox", "ContainerCreating", (0, None), ["0"])
    return {
        "schema": 1, "uid": UID, "seq": 3, "time": 1000.25, "phase": "running", "end": None,
        "job": {"id": "100", "node": "n1", "restart": 0, "gpus": ["0"]},
        "runner": {"version": "0.1.0", "mode": "plain", "python": "3.11.7"},
        "containers": [container], **fields,
    }  # fmt: skip


def status_of(root: Path) -> Any:
    return read_status(root, "pod", ME, UID)


def test_no_status_yet(tmp_path: Path) -> None:
    assert status_of(tmp_path) is None


def test_what_the_runner_itself_writes_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    job = {"id": "100", "node": "n1", "restart": 1, "gpus": ["0", "1"]}
    written = writer.Status(str(tmp_path / "pod"), UID, job, "3.11.7")
    written.containers = [writer.waiting("main", True, "busybox", "PodInitializing", (1, None), ["0"])]
    usage.note(written.containers[0], 1.25, 4096)
    written.end = {"exit_code": 3, "reason": "DeadlineExceeded", "message": "over"}
    written.write()
    assert status_of(tmp_path) == json.loads((tmp_path / "pod" / "status.json").read_text())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        "[" * (2 * sys.getrecursionlimit() * 20),
        '{"seq": ' + "9" * 5000 + "}",
        {},
        good(schema=2),
        good(schema="1"),
        good(schema=[1]),
        good(schema=None),
        good(uid="another"),
        good(uid=None),
        good(uid=[]),
        good(containers=None),
        good(containers={}),
        good(containers=["main"]),
        good(containers=[{}]),
        good(containers=[{"name": "main"}]),
        good(containers=[{"name": ["main"], "state": "running"}]),
        good(containers=[{"name": "main", "state": "flying"}]),
        good(containers=[{"name": "main", "state": ["running"]}]),
        good(containers=[{"name": "main", "state": "running"}] * 2),
        good(seq="3"),
        good(seq=-1),
        good(seq=True),
        good(job="100"),
        good(job={"restart": "x"}),
        good(job={"gpus": 4}),
        good(job={"gpus": [4]}),
        good(end=[]),
        good(end={"exit_code": 999}),
        good(time="now"),
        good(time=float("nan")),
        good(time=1e300),
        good(containers=[{"name": "main", "state": "terminated", "exit_code": "0"}]),
        good(containers=[{"name": "main", "state": "terminated", "exit_code": -9}]),
        good(containers=[{"name": "main", "state": "running", "started_at": []}]),
        good(containers=[{"name": "main", "state": "running", "message": {}}]),
        good(containers=[{"name": "main", "state": "running", "cpu_s": "1"}]),
        good(containers=[{"name": "main", "state": "running", "cpu_s": True}]),
        good(containers=[{"name": "main", "state": "running", "cpu_s": -0.1}]),
        good(containers=[{"name": "main", "state": "running", "cpu_s": float("inf")}]),
        good(containers=[{"name": "main", "state": "running", "memory_bytes": 1.5}]),
        good(containers=[{"name": "main", "state": "running", "memory_bytes": -1}]),
        good(containers=[{"name": "main", "state": "running", "memory_peak_bytes": 10**30}]),
        good(containers=[{"name": "main", "state": "waiting", "last_state": {"cpu_s": []}}]),
        b" " * (LIMIT + 1),
    ],
    ids=range(49),
)
def test_what_no_runner_would_write(tmp_path: Path, content: Any) -> None:
    put(tmp_path, content)
    with pytest.raises(UntrustedFile) as caught:
        status_of(tmp_path)
    assert "\n" not in str(caught.value)


def test_texts_are_made_fit_for_people(tmp_path: Path) -> None:
    text = "\x1b[31mred\n\tline\r\ud800" + "x" * 10_000
    run = {"exit_code": 1, "message": text, "reason": text}
    put(tmp_path, good(containers=[{"name": "main", "state": "terminated", **run, "last_state": run}]))
    shown = status_of(tmp_path)["containers"][0]
    for each in (shown, shown["last_state"]):
        # A container's own words have lines; a reason is one word.
        assert each["message"].startswith(" [31mred\n\tline  x")
        assert each["reason"].startswith(" [31mred  line  x")
        assert (len(each["message"]), len(each["reason"])) == (4096, 4096)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["seq", "time", "phase", "end", "job", "runner", "containers"]
INNER = ["name", "init", "state", "reason", "message", "exit_code", "signal", "started_at", "finished_at",
         "image", "image_id", "restart_count", "gpus", "cpu_s", "memory_bytes",
         "memory_peak_bytes"]  # fmt: skip


@given(st.sampled_from(KEYS), st.sampled_from(INNER), st.booleans(), JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
def test_whatever_a_user_writes_breaks_nothing_later(
    tmp_path: Path, key: str, inner: str, deep: bool, value: Any
) -> None:
    raw = good()
    if deep:
        raw["containers"][0] |= {"state": "terminated", "exit_code": 0, inner: value}
    else:
        raw[key] = value
    put(tmp_path, raw)
    try:
        status = status_of(tmp_path)
    except UntrustedFile:
        return
    seen = step(step(Tracked(100), JobSeen(JobInfo(100, ("RUNNING",)))).tracked, RunnerSeen(status)).tracked
    for words in (["RUNNING"], ["FAILED"]):
        found = pod_status(
            Facts([{"name": "main", "init": False, "image": "x"}], seen.job, classify(words), seen.runner)
        )
        json.dumps(found.containers)
        found.message.encode()

"""The key, the proof and the reading of events that anybody may have sent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import ConfigError, Invalid
from slurmrest_adapter.domain.spank import Kind
from slurmrest_adapter.sources import spank
from tests.fakes.spank import KEY, body, event, fields


def test_an_event_is_read() -> None:
    found = event(
        "step_end",
        step="batch",
        pod="uid-1",
        gpus=[1, 0],
        cpu_s=2,
        peak_bytes=7,
        dropped=3,
        array_job=5,
        new="x",
    )
    assert (found.kind, found.job, found.step, found.pod) == (Kind.STEP_END, 100, "batch", "uid-1")
    assert (found.gpus, found.cpu_s, found.peak_bytes, found.dropped) == ((1, 0), 2.0, 7, 3)
    assert event("allocated").gpus is None
    assert event("allocated", gpus=[]).gpus == ()
    assert event("test", job=None).job == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": None},
        {"event": "exploded"},
        {"cluster": ""},
        {"cluster": "a/b"},
        {"node": None},
        {"node": "n1\n"},
        {"node": "n" * 256},
        {"time": "now"},
        {"time": -1},
        {"time": 1e12},
        {"stream": "0123456789ABCDEF"},
        {"stream": "0123"},
        {"seq": 0},
        {"seq": 1.5},
        {"seq": True},
        {"job": 0},
        {"job": None},
        {"job": "100"},
        {"job": 2**40},
        {"step": "a b"},
        {"pod": "'; rm"},
        {"gpus": [-1]},
        {"gpus": ["0"]},
        {"gpus": list(range(300))},
        {"gpus": 1},
        {"cpu_s": -1},
        {"peak_bytes": 1.5},
        {"dropped": -1},
    ],
)
def test_what_is_no_event(changes: dict[str, Any]) -> None:
    kind = changes.pop("event", "allocated")
    with pytest.raises(Invalid):
        spank.parse(body(kind, **changes))


def test_a_test_is_of_no_job() -> None:
    with pytest.raises(Invalid, match=r"event\.job"):
        spank.parse(body("test", job=5))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 4000,
        b'{"v": NaN}',
        b"\0" * 100,
        b'{"v":1}',
        b'"x"',
        b"1e999",
    ],
)
def test_what_is_no_json_of_one(text: bytes) -> None:
    with pytest.raises(Invalid):
        spank.parse(text)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with pytest.raises(Invalid):
        spank.parse(text)


@given(st.dictionaries(st.sampled_from(sorted(fields())), st.none() | st.integers() | st.text(max_size=20)))
def test_any_values_are_read_or_refused(changes: dict[str, Any]) -> None:
    text = json.dumps({**fields(), **changes}).encode()
    try:
        found = spank.parse(text)
    except Invalid:
        return
    assert found.node
    assert found.node.isascii()


def test_only_the_right_key_and_the_right_bytes_prove() -> None:
    text = body()
    good = spank.sign(KEY, text)
    assert good.startswith("sha256=")
    assert spank.Proof(KEY).holds(text, good)
    assert spank.Proof(KEY).holds(text, f" {good} ")
    for wrong in (
        "",
        "sha256=",
        good[:-1],
        good.upper(),
        good.removeprefix("sha256="),
        "é",
        spank.sign(KEY[1:], text),
    ):
        assert not spank.Proof(KEY).holds(text, wrong)
    assert not spank.Proof(KEY).holds(text + b" ", good)


class TestKey:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "spank.key"
        path.write_bytes(KEY + b"\n")
        path.chmod(0o600)
        return path

    def refused(self, path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            spank.read_key(path)
        words = str(caught.value)
        assert words.startswith(f"spank.key_file: {path}")
        return words

    def test_a_newline_at_the_end_is_not_part_of_it(self, path: Path) -> None:
        assert spank.read_key(path) == KEY

    def test_it_is_missing(self, path: Path) -> None:
        path.unlink()
        assert "No such file" in self.refused(path)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
    def test_others_may_use_it(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        assert f"mode {mode:04o}" in self.refused(path)

    def test_it_is_too_short(self, path: Path) -> None:
        path.write_bytes(KEY[:31] + b"\n")
        assert "holds 31 bytes" in self.refused(path)

    def test_it_is_too_long(self, path: Path) -> None:
        path.write_bytes(b"k" * 5000)
        assert "no key" in self.refused(path)

    def test_it_is_no_file(self, path: Path) -> None:
        path.unlink()
        os.mkfifo(path, 0o600)
        assert "no regular file" in self.refused(path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_it_is_somebody_elses(self, path: Path) -> None:
        os.chown(path, 65534, 65534)
        assert "belongs to uid 65534" in self.refused(path)

"""Secrets, the state directory and the shared directory, on real files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.config import Settings
from slurmrest_adapter.doctor import files
from slurmrest_adapter.doctor.verdict import Check, Verdict
from slurmrest_adapter.identity.base import Owner

ME = Owner("me", uid=os.geteuid() or 1001, gid=os.getegid() or 1001)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to somebody else")


def verdicts(checks: list[Check]) -> list[str]:
    return [check.verdict.value for check in checks]


@pytest.mark.parametrize(
    ("mode", "verdict"), [(0o600, "ok"), (0o640, "warn"), (0o604, "fail"), (0o666, "fail")]
)
def test_a_secret_is_for_us_alone(tmp_path: Path, mode: int, verdict: str) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(mode)
    settings = Settings.model_validate({"slurm": {"token": {"source": "hs256", "key_file": str(key)}}})
    (check,) = files.secret_files(settings, None)
    assert check.verdict.value == verdict
    assert str(key) in check.seen
    assert "kkk" not in check.seen
    assert bool(check.advice) == (verdict != "ok")


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    settings = Settings.model_validate({"listen": {"token_file": str(tmp_path / "none")}})
    (check,) = files.secret_files(settings, None)
    assert check.verdict is Verdict.FAIL
    assert "listen.token_file" in check.advice


def test_a_file_that_holds_the_token_itself(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("slurm: {token: {source: static, token: abc}}")
    config.chmod(0o644)
    settings = Settings.model_validate({"slurm": {"token": {"source": "static", "token": "abc"}}})
    (check,) = files.secret_files(settings, config)
    assert check.verdict is Verdict.FAIL


def test_no_secret_at_all() -> None:
    assert verdicts(files.secret_files(Settings(), None)) == ["skip"]


@pytest.mark.parametrize(("mode", "verdict"), [(0o700, "ok"), (0o755, "warn"), (0o777, "fail")])
def test_the_state_directory(tmp_path: Path, mode: int, verdict: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    check = files.state_directory(state)
    assert check.verdict.value == verdict
    assert not list(state.iterdir())


def test_a_state_directory_to_be_made(tmp_path: Path) -> None:
    assert files.state_directory(tmp_path / "a" / "b").verdict is Verdict.OK
    assert not (tmp_path / "a").exists()


def test_a_state_directory_that_cannot_be_written() -> None:
    assert files.state_directory(Path("/proc/self")).verdict is Verdict.FAIL


def test_a_state_directory_on_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "file_system", lambda path: "nfs4")
    check = files.state_directory(tmp_path)
    assert check.verdict is Verdict.FAIL
    assert "local disk" in check.advice


def test_the_kind_of_file_system() -> None:
    assert files.file_system(Path("/proc/self/status")) == "proc"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "pods"
    path.mkdir()
    path.chmod(0o711)
    return path


def test_a_good_shared_directory(shared: Path) -> None:
    checks = files.shared_directory(shared, [ME])
    assert verdicts(checks) == ["ok", "ok"]
    assert not list(shared.iterdir())


@pytest.mark.parametrize(
    ("mode", "verdict"), [(0o755, "warn"), (0o777, "fail"), (0o1777, "warn"), (0o1733, "warn"), (0o711, "ok")]
)
def test_who_may_read_and_write_it(shared: Path, mode: int, verdict: str) -> None:
    shared.chmod(mode)
    assert verdicts(files.shared_directory(shared, [ME]))[0] == verdict


@root_only
def test_a_shared_directory_that_users_cannot_get_through(shared: Path) -> None:
    shared.chmod(0o700)
    assert verdicts(files.shared_directory(shared, [ME]))[0] == "fail"


@root_only
def test_another_users_directory(shared: Path) -> None:
    os.chown(shared, 1234, 1234)
    check = files.shared_directory(shared, [ME])[0]
    assert check.verdict is Verdict.FAIL
    assert "uid 1234" in check.seen
    assert "chown root" in check.advice


def test_shared_directories_that_are_none(shared: Path) -> None:
    file = shared / "file"
    file.touch()
    for path in (None, shared / "missing", file):
        (check,) = files.shared_directory(path, [ME])
        assert check.verdict is Verdict.FAIL
        assert check.advice


def test_a_user_without_a_uid(shared: Path) -> None:
    check = files.shared_directory(shared, [Owner("stranger")])[1]
    assert check.verdict is Verdict.FAIL
    assert "stranger" in check.seen


def test_without_root_there_is_one_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: shared.stat().st_uid or 4242)
    other: Any = Owner("other", uid=77, gid=77)
    check = files.shared_directory(shared, [other])[1]
    assert check.verdict is Verdict.FAIL
    assert "other" in check.seen
    assert "root" in check.advice

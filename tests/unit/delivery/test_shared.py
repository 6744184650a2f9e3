"""A plan reaches its reader alone, whole, once."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from slurmrest_adapter.delivery.shared import SharedDelivery
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.domain.podplan import ContainerPlan, PodPlan

UID, GID = (1001, 1002) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
PLAN = PodPlan(
    "uid-1", "physics", "train", "lab", (ContainerPlan("main", "busybox", env=(("A", "s3cr3t ☃"),)),)
)
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def delivery(tmp_path: Path) -> SharedDelivery:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o711)
    return SharedDelivery(tmp_path / "shared", "/nodes/shared")


def test_names_are_unguessable_and_nothing_is_made(delivery: SharedDelivery, tmp_path: Path) -> None:
    names = {delivery.reserve() for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    assert list((tmp_path / "shared").iterdir()) == []


def test_paths_here_and_on_the_nodes(delivery: SharedDelivery, tmp_path: Path) -> None:
    assert delivery.on_nodes("abc") == "/nodes/shared/abc"
    assert SharedDelivery(tmp_path, None).on_nodes("abc") == f"{tmp_path}/abc"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_modes_whatever_the_umask(delivery: SharedDelivery, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        delivery.put("a" * 32, PLAN, UID, GID)
    finally:
        os.umask(before)
    directory = tmp_path / "shared" / ("a" * 32)
    assert mode(tmp_path / "shared") == 0o711
    assert mode(directory) == 0o700
    assert mode(directory / "plan.json") == 0o400
    assert [path.name for path in directory.iterdir()] == ["plan.json"]
    assert json.loads((directory / "plan.json").read_text("ascii"))["containers"][0]["env"] == [
        ["A", "s3cr3t ☃"]
    ]


def test_a_shared_directory_that_is_there_keeps_its_mode(delivery: SharedDelivery, tmp_path: Path) -> None:
    (tmp_path / "shared").chmod(0o755)
    delivery.put("a" * 32, PLAN, UID, GID)
    assert mode(tmp_path / "shared") == 0o755


@ROOT_ONLY
def test_all_of_it_is_the_users_own(delivery: SharedDelivery, tmp_path: Path) -> None:
    delivery.put("a" * 32, PLAN, UID, GID)
    for path in (tmp_path / "shared" / ("a" * 32), tmp_path / "shared" / ("a" * 32) / "plan.json"):
        assert (path.stat().st_uid, path.stat().st_gid) == (UID, GID)


def test_twice_is_once(delivery: SharedDelivery, tmp_path: Path) -> None:
    delivery.put("a" * 32, PLAN, UID, GID)
    plan = tmp_path / "shared" / ("a" * 32) / "plan.json"
    (plan.parent / "status.json").write_text("{}")
    before = plan.stat()
    delivery.put("a" * 32, PLAN, UID, GID)
    assert plan.stat() == before
    assert (plan.parent / "status.json").exists()


OTHER = replace(PLAN, containers=(ContainerPlan("main", "busybox", env=(("A", "mended"),)),))


def test_another_plan_replaces_one_that_nobody_has_begun(delivery: SharedDelivery, tmp_path: Path) -> None:
    directory = tmp_path / "shared" / ("a" * 32)
    for _ in range(2):  # a crash in the middle leaves a name behind, which is no hindrance
        delivery.put("a" * 32, PLAN, UID, GID)
        (directory / ".plan.new").write_text("half")
        delivery.put("a" * 32, OTHER, UID, GID)
        assert (directory / "plan.json").read_text() == OTHER.to_json()
        assert [path.name for path in directory.iterdir()] == ["plan.json"]
        found = (directory / "plan.json").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o400, UID, GID)


def test_a_plan_that_runs_is_left_alone(delivery: SharedDelivery, tmp_path: Path) -> None:
    directory = tmp_path / "shared" / ("a" * 32)
    delivery.put("a" * 32, PLAN, UID, GID)
    (directory / "claim").write_text("{}")
    delivery.put("a" * 32, OTHER, UID, GID)
    assert (directory / "plan.json").read_text() == PLAN.to_json()
    (directory / "plan.json").unlink()  # as the runner does
    delivery.put("a" * 32, OTHER, UID, GID)
    assert not (directory / "plan.json").exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_its_user_put_there_is_not_followed(delivery: SharedDelivery, tmp_path: Path, kind: str) -> None:
    delivery.put("a" * 32, PLAN, UID, GID)
    directory = tmp_path / "shared" / ("a" * 32)
    target = tmp_path / "precious"
    target.write_text("x")
    (directory / "plan.json").unlink()
    for name in ("plan.json", ".plan.new"):
        if kind == "link":
            (directory / name).symlink_to(target)
        elif kind == "fifo":
            os.mkfifo(directory / name)
        else:
            (directory / name).mkdir()
    if kind == "directory":
        with pytest.raises(ConfigError, match="cannot take a pod's plan"):
            delivery.put("a" * 32, OTHER, UID, GID)
        return
    delivery.put("a" * 32, OTHER, UID, GID)
    assert target.read_text() == "x"
    assert (directory / "plan.json").read_text() == OTHER.to_json()
    assert not (directory / "plan.json").is_symlink()


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    """It may be a share that is not mounted."""
    with pytest.raises(ConfigError, match=r"shared_dir .* mount it, or create it .*0711"):
        SharedDelivery(tmp_path / "mnt" / "shared", None).put("a" * 32, PLAN, UID, GID)
    with pytest.raises(ConfigError, match="shared_dir"):
        SharedDelivery(tmp_path / "shared", None).put("a" * 32, PLAN, UID, GID)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_in_the_middle_leaves_no_half_plan(
    delivery: SharedDelivery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", cut_off)
    with pytest.raises(KeyboardInterrupt):
        delivery.put("a" * 32, PLAN, UID, GID)
    monkeypatch.undo()
    final = tmp_path / "shared" / ("a" * 32)
    assert not final.exists()
    assert list((tmp_path / "shared").iterdir())  # the leftover
    delivery.put("a" * 32, PLAN, UID, GID)
    assert (final / "plan.json").read_text() == PLAN.to_json()
    assert list((tmp_path / "shared").iterdir()) == [final]


@pytest.mark.parametrize("ids", [(None, None), (UID, None), (None, GID)])
def test_without_an_owner_it_is_refused(delivery: SharedDelivery, ids: tuple[int | None, int | None]) -> None:
    with pytest.raises(ConfigError, match="uid and gid"):
        delivery.put("a" * 32, PLAN, *ids)


def test_without_root_only_ones_own(delivery: SharedDelivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(ConfigError, match="which only root can do"):
        delivery.put("a" * 32, PLAN, 4712, 4712)


def test_no_directory_to_write_to_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file")
    with pytest.raises(ConfigError, match="shared_dir"):
        SharedDelivery(tmp_path / "shared", None).put("a" * 32, PLAN, UID, GID)


@NOT_ROOT
def test_an_unwritable_directory_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="shared_dir"):
        SharedDelivery(tmp_path / "shared", None).put("a" * 32, PLAN, UID, GID)


def test_the_plan_is_in_no_repr_and_no_error(tmp_path: Path) -> None:
    assert "s3cr3t" not in repr(PLAN) + repr(PLAN.containers)


def test_discard_takes_the_plan_and_nothing_else(delivery: SharedDelivery, tmp_path: Path) -> None:
    delivery.discard("b" * 32)  # never made
    delivery.put("a" * 32, PLAN, UID, GID)
    directory = tmp_path / "shared" / ("a" * 32)
    (directory / "status.json").write_text("{}")
    for _ in range(2):
        delivery.discard("a" * 32)
        assert [path.name for path in directory.iterdir()] == ["status.json"]
    # A link in the plan's place is removed itself; what it points at stays.
    target = tmp_path / "precious"
    target.write_text("x")
    (directory / "plan.json").symlink_to(target)
    delivery.discard("a" * 32)
    assert target.exists()
    assert not (directory / "plan.json").is_symlink()

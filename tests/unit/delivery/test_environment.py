"""A plan in pieces: whole at the other end, refused where it does not fit, nowhere on disk."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slurmrest_adapter.delivery.environment import LIMIT, PIECE_BYTES, EnvironmentDelivery, variables
from slurmrest_adapter.delivery.shared import SharedDelivery
from slurmrest_adapter.domain.errors import ConfigError, Unsupported
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.podplan import ContainerPlan, FilePlan, PodPlan, VolumePlan
from slurmrest_adapter.podrunner import carried, status

UID, GID = (1001, 1002) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
DIRECTORY = "a" * 32
# Takes the plan as the runner does, then says what is left of it for itself, a fork and a program.
TAKER = """
import os, sys
from slurmrest_adapter.podrunner import carried
text = carried.take()
sys.stdout.buffer.write(text if text is not None else b"none")
sys.stdout.flush()
look = "tr '\\\\0' '\\\\n' </proc/%s/environ | grep -c SRA_PLAN; env | grep -c SRA_PLAN"
pid = os.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", "{ %s; %s; } >&2" % (look % os.getppid(), look % "$$")])
os.waitpid(pid, 0)
print(os.environ["KEPT"], file=sys.stderr)
"""


def plan_of(size: int) -> PodPlan:
    """A plan with a file of so many bytes that nothing makes smaller."""
    file = FilePlan("key", 0o400, base64.b64encode(os.urandom(size)).decode())
    return PodPlan(
        "uid-1", "physics", "train", "lab", (ContainerPlan("main", "busybox", env=(("A", "s3cr3t ☃"),)),),
        volumes=(VolumePlan("secret", (file,)),),
    )  # fmt: skip


@pytest.fixture
def delivery(tmp_path: Path) -> EnvironmentDelivery:
    (tmp_path / "shared").mkdir(mode=0o711)
    return EnvironmentDelivery(tmp_path / "shared", "/nodes/shared")


@pytest.mark.parametrize("size", [1, 127 * 1024, 1024 * 1024])
def test_a_plan_is_taken_out_whole_and_nothing_of_it_is_left(size: int) -> None:
    plan = plan_of(size)
    pieces = variables(plan)
    # What Linux takes as one string is 128 KiB, its name and end included.
    assert all(len(f"{name}={value}") + 1 <= 128_000 for name, value in pieces.items())
    assert all(value.isascii() and value.isprintable() for value in pieces.values())
    done = subprocess.run(
        [sys.executable, "-c", TAKER], env={**pieces, "KEPT": "kept", "PATH": os.environ["PATH"]},
        capture_output=True,
    )  # fmt: skip
    assert done.stdout.decode("ascii") == plan.to_json()
    assert done.stderr.decode().split() == ["0", "0", "0", "0", "kept"]


def test_the_look_for_what_is_left_can_find_it() -> None:
    kept = TAKER.replace("text = carried.take()", "text = b''")
    env = {**variables(plan_of(1)), "KEPT": "kept", "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", kept], env=env, capture_output=True)
    assert done.stderr.decode().split() == ["2", "2", "2", "2", "kept"]


@pytest.mark.parametrize("broken", ["missing", "cut", "garbled", "count", "nothing"])
def test_a_plan_that_is_not_whole_is_no_plan(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = variables(plan_of(200_000))
    if broken == "missing":
        del pieces["SRA_PLAN_1"]
    elif broken == "cut":
        pieces["SRA_PLAN_0"] = pieces["SRA_PLAN_0"][:-4]
    elif broken == "garbled":
        pieces["SRA_PLAN_1"] = "!" + pieces["SRA_PLAN_1"][1:]
    elif broken == "count":
        pieces["SRA_PLAN_PIECES"] = "two"
    else:
        pieces = {}
    for name, value in pieces.items():
        monkeypatch.setenv(name, value)
    if broken == "nothing":
        assert carried.take() is None
        return
    with pytest.raises((OSError, ValueError)):
        carried.take()
    assert not [name for name in os.environ if name.startswith("SRA_PLAN")]


def test_a_plan_that_is_too_large_is_refused_before_anything_is_made(
    delivery: EnvironmentDelivery, tmp_path: Path
) -> None:
    variables(plan_of(1_350_000))
    with pytest.raises(Unsupported, match=r"spec: .*environment.*shared"):
        delivery.put(DIRECTORY, plan_of(1_500_000), UID, GID)
    assert list((tmp_path / "shared").iterdir()) == []
    SharedDelivery(tmp_path / "shared", None).put(DIRECTORY, plan_of(1_500_000), UID, GID)


def test_the_limit_leaves_room_for_what_slurm_adds() -> None:
    pieces = -(-LIMIT // PIECE_BYTES)
    most = LIMIT + pieces * (len("SRA_PLAN_00=") + 1 + 8)  # names, ends and pointers
    assert most + 100_000 < 8 * 1024 * 1024 // 4


def test_the_directory_is_the_users_and_has_no_plan(delivery: EnvironmentDelivery, tmp_path: Path) -> None:
    carries = delivery.put(DIRECTORY, plan_of(10), UID, GID)
    assert set(carries) == {"SRA_PLAN_PIECES", "SRA_PLAN_0"}
    directory = tmp_path / "shared" / DIRECTORY
    found = directory.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o700, UID, GID)
    assert list(directory.iterdir()) == []
    (directory / "status.json").write_text("{}")
    assert delivery.put(DIRECTORY, plan_of(10), UID, GID).keys() == carries.keys()
    assert [path.name for path in directory.iterdir()] == ["status.json"]


def test_what_was_taken_back_is_run_by_nobody(delivery: EnvironmentDelivery, tmp_path: Path) -> None:
    delivery.discard(DIRECTORY)  # never made
    delivery.put(DIRECTORY, plan_of(10), UID, GID)
    for _ in range(2):
        delivery.discard(DIRECTORY)
    assert status.claim(str(tmp_path / "shared" / DIRECTORY), "17") is not None
    found = (tmp_path / "shared" / DIRECTORY / "claim").stat()
    assert (found.st_uid, found.st_gid) == (UID, GID)


def test_a_pod_that_runs_keeps_its_claim(delivery: EnvironmentDelivery, tmp_path: Path) -> None:
    delivery.put(DIRECTORY, plan_of(10), UID, GID)
    assert status.claim(str(tmp_path / "shared" / DIRECTORY), "17") is None
    delivery.discard(DIRECTORY)
    assert status.claim(str(tmp_path / "shared" / DIRECTORY), "17") is None  # a requeue finds it its own


@pytest.mark.parametrize("ids", [(None, None), (UID, None), (None, GID)])
def test_without_an_owner_it_is_refused(
    delivery: EnvironmentDelivery, ids: tuple[int | None, int | None]
) -> None:
    with pytest.raises(ConfigError, match="'environment' needs the job's user's uid and gid"):
        delivery.put(DIRECTORY, plan_of(1), *ids)


def test_a_job_with_a_plan_shows_it_in_no_repr() -> None:
    spec = replace(JobSpec("n", "c", "alice"), environment=variables(plan_of(1)))
    assert "SRA_PLAN" not in repr(spec)

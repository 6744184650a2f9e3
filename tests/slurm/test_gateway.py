"""The gateway on a real Slurm: every operation, every kind of refusal, as different users."""

from __future__ import annotations

import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import (
    Denied,
    MaybeAccepted,
    NotFound,
    Rejected,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo
from slurmrest_adapter.domain.jobspec import GpuRequest, JobSpec
from slurmrest_adapter.slurm import negotiate
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.gateway import Gateway

pytestmark = pytest.mark.slurm

SLURM_LAB = Path(__file__).parents[2] / "scripts" / "slurm-lab"
OPERATOR = "slurmrest"
SLEEP = "#!/bin/sh\nsleep 60\n"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}


def lab(*arguments: str) -> str:
    """Runs scripts/slurm-lab and returns what it printed."""
    done = subprocess.run([SLURM_LAB, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """What ``slurm-lab env`` prints."""
    lab("up")
    return dict(word.split("=", 1) for word in shlex.split(lab("env")))


@pytest.fixture(scope="module")
def minted(settings: dict[str, str]) -> TokenSettings:
    return TokenSettings("hs256", key_file=settings["LAB_JWT_KEY"])


@pytest.fixture(scope="module")
def room(settings: dict[str, str], minted: TokenSettings) -> Iterator[Gateway]:
    """Each user with a token of their own; the operator asks in bulk."""
    gateway = build_gateway([settings["LAB_REST"]], minted, service_user=OPERATOR)
    yield gateway
    gateway.close()


Make = Callable[..., JobSpec]


@pytest.fixture
def spec(room: Gateway) -> Iterator[Make]:
    """Makes small jobs with names of their own, and cancels what is left of them."""
    made: list[JobSpec] = []

    def make(user: str = "alice", **fields: Any) -> JobSpec:
        found = JobSpec(
            name=f"gw-{uuid.uuid4().hex[:12]}",
            comment=f"sra1:{uuid.uuid4().hex}",
            user=user,
            partition="all",
            memory_mib=16,
            time_limit_minutes=3,
        )
        made.append(replace(found, **fields))
        return made[-1]

    yield make
    for one in made:
        if one.user in ("alice", "bob"):
            for job in room.find_by_name(one.name, one.user):
                if not ENDED.intersection(job.states):
                    room.cancel(job.job_id, one.user)


def wait(ask: Callable[[], Any], enough: Callable[[Any], Any], seconds: float = 60) -> Any:
    """Asks until the answer is enough."""
    end = time.monotonic() + seconds
    while not enough(answer := ask()):
        assert time.monotonic() < end, f"still {answer}"
        time.sleep(0.1)
    return answer


def running(room: Gateway, job_id: int, user: str = "alice") -> JobInfo:
    found: JobInfo = wait(lambda: room.job(job_id, user), lambda job: "RUNNING" in job.states)
    return found


def ended(room: Gateway, job_id: int, user: str = "alice") -> AccountingRecord:
    """The record once slurmdbd has the end, with the steps."""
    found: AccountingRecord = wait(
        lambda: room.accounting(job_id, user), lambda record: record is not None and record.end_time
    )
    return found


def test_ping_and_version(room: Gateway, settings: dict[str, str]) -> None:
    found = room.ping()
    assert found.release.startswith(settings["LAB_VERSION"])
    assert found.up
    assert room.api_version == negotiate.OURS[0]


def test_versions_that_are_served_are_found_out(room: Gateway) -> None:
    served = negotiate.served(lambda version: room._serves(version, "alice"))
    assert served == ("v0.0.40", "v0.0.41", "v0.0.42")


def test_partitions(room: Gateway) -> None:
    found = {partition.name: partition for partition in room.partitions()}
    gpu = found["gpu"]
    assert (gpu.states, gpu.nodes, gpu.max_time_minutes) == (("UP",), "n[1-3]", 24 * 60)
    assert "gres/gpu:a100=8" in gpu.tres
    assert found["all"].max_time_minutes is None
    assert found["cpu"].default_time_minutes == 10


def test_nodes(room: Gateway) -> None:
    found = {node.name: node for node in room.nodes()}
    assert (found["n1"].cpus, found["n1"].memory_mib, found["n1"].gres) == (16, 64000, "gpu:a100:4")
    assert "a100" in found["n1"].features
    assert {"gpu", "all"} <= set(found["n1"].partitions)


def test_a_job_gets_what_was_asked_for_and_leaves_a_record(room: Gateway, spec: Make) -> None:
    asked = spec(
        account="physics",
        partition="gpu",
        cpus=3,
        memory_mib=77,
        gpus=(GpuRequest("gpu", "a100", 2),),
        constraints="nvlink",
        environment={"ODD": "a b=c\n$(id) `x` ü"},
    )
    script = "#!/bin/sh\nsleep 2\ntest \"$ODD\" = 'a b=c\n$(id) `x` ü' || exit 9\nexit 3\n"
    ref = room.submit(asked, script)
    assert ref.job_id > 0
    job = running(room, ref.job_id)
    assert (job.name, job.comment, job.user, job.account) == (asked.name, asked.comment, "alice", "physics")
    assert (job.cpus, job.memory_mib, job.time_limit_minutes) == (3, 77, 3)
    assert [gres.partition("(")[0] for gres in job.gres] == ["gpu:a100:2"]
    assert room.states([ref.job_id])[ref.job_id].states[0] == "RUNNING"
    assert room.states()[ref.job_id].job_id == ref.job_id
    assert lab("exec", "scontrol", "write", "batch_script", str(ref.job_id), "-") == script

    record = ended(room, ref.job_id)
    assert (record.job_id, record.states, record.exit_code.return_code) == (ref.job_id, ("FAILED",), 3)
    assert (record.comment, record.user, record.account) == (asked.comment, "alice", "physics")
    expected = {"cpu": 3, "mem": 77, "gres/gpu": 2, "gres/gpu:a100": 2}
    assert expected.items() <= record.tres_allocated.items()
    assert record.elapsed_seconds >= 2
    assert record.cpu_user_seconds + record.cpu_system_seconds > 0
    # The job of the same id is asked for, not whatever slurmdbd lists first.
    other = room.submit(spec(), "#!/bin/sh\n")
    assert ended(room, other.job_id).job_id == other.job_id
    assert room.states([ref.job_id, 10_000_000]).keys() <= {ref.job_id}


def test_unknown_jobs(room: Gateway) -> None:
    with pytest.raises(NotFound):
        room.job(10_000_000, "alice")
    with pytest.raises(NotFound):
        room.cancel(10_000_000, "alice")
    with pytest.raises(NotFound):
        room.signal(10_000_000, "TERM", "alice")
    assert room.accounting(10_000_000, "alice") is None
    assert room.states([10_000_000]) == {}


def test_a_job_is_found_by_its_name(room: Gateway, spec: Make) -> None:
    asked = spec()
    assert room.find_by_name(asked.name, "alice") == []
    ref = room.submit(asked, SLEEP)
    assert [job.job_id for job in room.find_by_name(asked.name, "alice")] == [ref.job_id]
    assert room.find_by_name(asked.name, "bob") == []
    running(room, ref.job_id)
    room.cancel(ref.job_id, "alice")
    ended(room, ref.job_id)
    (found,) = room.find_by_name(asked.name, "alice", since=int(time.time()) - 3600)
    assert (found.job_id, found.comment, found.states[0]) == (ref.job_id, asked.comment, "CANCELLED")


def test_a_held_job_is_found_by_its_name(room: Gateway, spec: Make) -> None:
    name = spec().name
    said = lab(
        "exec", "--as", "alice", "sbatch", "-H", "--parsable", "-p", "all", "-J", name, "--wrap", "true"
    )
    assert [job.job_id for job in room.find_by_name(name, "alice")] == [int(said)]


def test_singleton_keeps_a_twin_pending(room: Gateway, spec: Make) -> None:
    asked = spec()
    first, second = room.submit(asked, SLEEP), room.submit(asked, SLEEP)
    running(room, first.job_id)
    twin = wait(lambda: room.job(second.job_id, "alice"), lambda job: job.reason == "Dependency")
    assert twin.states == ("PENDING",)
    assert "singleton" in twin.dependency
    # slurmdbd does not know the twin: it is not eligible yet.
    assert [job.job_id for job in room.find_by_name(asked.name, "alice")] == [first.job_id]
    room.cancel(first.job_id, "alice")
    running(room, second.job_id)
    assert second.job_id in [job.job_id for job in room.find_by_name(asked.name, "alice")]


def test_a_job_that_waits_is_found_beside_one_that_has_ended(room: Gateway, spec: Make) -> None:
    blocker = room.submit(spec(), SLEEP)
    asked = spec()
    done = room.submit(asked, "#!/bin/sh\n")
    ended(room, done.job_id)
    waits = room.submit(replace(asked, dependency=f"singleton,afterok:{blocker.job_id}"), SLEEP)
    assert {job.job_id for job in room.find_by_name(asked.name, "alice")} == {done.job_id, waits.job_id}


@pytest.mark.parametrize(
    ("fields", "number", "words"),
    [
        ({"partition": "nowhere"}, 2000, "Invalid partition name specified"),
        ({"account": "nobody"}, 2045, "Invalid account"),
        ({"qos": "nothing"}, 2066, "Invalid qos"),
        ({"partition": "gpu", "gpus": (GpuRequest("gpu", "a100", 64),)}, 2014, "not available"),
        ({"gpus": (GpuRequest("gpu", "h9000", 1),)}, 2014, "not available"),
        ({"gpus": (GpuRequest("fpga", None, 1),)}, 2072, "Invalid generic resource"),
        ({"dependency": "afterok:10000000"}, 2038, "dependency"),
    ],
)
def test_refusals_are_in_slurms_words(
    room: Gateway, spec: Make, fields: dict[str, Any], number: int, words: str
) -> None:
    asked = spec(**fields)
    with pytest.raises(Rejected, match=words) as caught:
        room.submit(asked, "#!/bin/sh\n")
    assert caught.value.number == number
    # Slurm keeps a record of some that it refused (2014), ended before it began.
    assert all(ENDED.intersection(job.states) for job in room.find_by_name(asked.name, "alice"))


def test_one_cannot_end_anothers_job(room: Gateway, spec: Make) -> None:
    ref = room.submit(spec("bob"), SLEEP)
    running(room, ref.job_id, "bob")
    with pytest.raises(Denied):
        room.cancel(ref.job_id, "alice")
    with pytest.raises(Denied):
        room.signal(ref.job_id, "TERM", "alice")
    assert "RUNNING" in room.job(ref.job_id, "bob").states
    room.cancel(ref.job_id, "bob")
    ended(room, ref.job_id, "bob")
    room.cancel(ref.job_id, "bob")  # again: it has ended, which is what was asked for


def test_the_operator_may(room: Gateway, spec: Make) -> None:
    ref = room.submit(spec(), SLEEP)
    running(room, ref.job_id)
    room.cancel(ref.job_id, OPERATOR)
    record = ended(room, ref.job_id)
    assert record.states == ("CANCELLED",)
    assert record.kill_request_user == OPERATOR


def test_a_signal_reaches_the_batch_process(room: Gateway, spec: Make) -> None:
    script = "#!/bin/sh\ntrap 'kill $!; exit 7' USR1\nsleep 60 &\nwait\n"
    for batch_only in (True, False):
        ref = room.submit(spec(), script)
        running(room, ref.job_id)

        def again(job_id: int = ref.job_id, only: bool = batch_only) -> AccountingRecord | None:
            # RUNNING is shown before the script has set its trap up; a signal then is lost.
            room.signal(job_id, "USR1", "alice", batch_only=only)
            return room.accounting(job_id, "alice")

        time.sleep(0.5)
        record = wait(again, lambda record: record is not None and record.end_time)
        assert (record.states, record.exit_code.return_code) == (("FAILED",), 7)


def test_an_expired_token(settings: dict[str, str], spec: Make) -> None:
    token = lab("token", "--lifetime", "-60", "alice").strip()
    expired = build_gateway([settings["LAB_REST"]], TokenSettings("static", value=token))
    asked = spec()
    for call in (
        lambda: expired.submit(asked, SLEEP),
        lambda: expired.states(user="alice"),
        lambda: expired.accounting(1, "alice"),
        lambda: expired.cancel(1, "alice"),
    ):
        with pytest.raises(Unauthorized, match="it has expired") as caught:
            call()
        assert token not in repr(caught.value)


def test_a_wrong_key(settings: dict[str, str], tmp_path: Path, spec: Make) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    wrong = build_gateway([settings["LAB_REST"]], TokenSettings("hs256", key_file=str(key)))
    wrong.ping()  # is answered all the same
    with pytest.raises(Unauthorized, match=f"the HS256 key {key} for user alice"):
        wrong.submit(spec(), SLEEP)
    with pytest.raises(Unauthorized):  # which /slurmdb itself answers as if slurmdbd were down
        wrong.accounting(1, "alice")


def test_no_token_where_one_is_wanted(settings: dict[str, str]) -> None:
    with pytest.raises(Unauthorized, match=r"slurm\.token"):
        build_gateway([settings["LAB_REST"]], TokenSettings("none")).ping()


def test_an_ordinary_token_cannot_speak_for_another(settings: dict[str, str], spec: Make) -> None:
    token = TokenSettings("static", value=lab("token", "alice").strip())
    alice = build_gateway([settings["LAB_REST"]], token)
    assert alice.states() == alice.states(user="alice")
    with pytest.raises(Unauthorized, match="for user bob"):
        alice.submit(spec("bob"), SLEEP)


def test_a_privileged_token_speaks_for_anybody(
    settings: dict[str, str], tmp_path: Path, room: Gateway, spec: Make
) -> None:
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={lab('token', 'root')}")
    anybody = build_gateway([settings["LAB_REST"]], TokenSettings("file", token_file=str(path)))
    asked = spec("bob")
    ref = anybody.submit(asked, "#!/bin/sh\n")
    job = room.job(ref.job_id, "bob")
    uid, gid = (int(lab("exec", "id", flag, "bob")) for flag in ("-u", "-g"))
    assert (job.user, job.uid, job.gid, job.account) == ("bob", uid, gid, "ai")


def test_two_users_at_once_through_one_gateway(room: Gateway, spec: Make) -> None:
    specs = [spec(user) for user in ("alice", "bob") * 8]
    with ThreadPoolExecutor(8) as callers:
        refs = list(callers.map(lambda one: room.submit(one, "#!/bin/sh\n"), specs))
        jobs = list(callers.map(lambda ref: room.job(ref.job_id, OPERATOR), refs))
    assert [(job.name, job.user, job.comment) for job in jobs] == [(s.name, s.user, s.comment) for s in specs]


def test_more_callers_than_slurmrestd_has_connections(room: Gateway) -> None:
    with ThreadPoolExecutor(150) as callers:
        answers = list(callers.map(lambda _: room.ping().up, range(300)))
    assert answers == [True] * 300


def test_the_unix_socket_speaks_as_its_owner_alone(settings: dict[str, str], spec: Make) -> None:
    local = build_gateway([f"unix://{settings['LAB_REST_SOCKET']}"], TokenSettings("none"))
    assert local.ping().up
    assert {node.name for node in local.nodes()} == {"n1", "n2", "n3", "n4"}
    assert isinstance(local.states(), dict)
    uid, gid = (int(lab("exec", "id", flag, "alice")) for flag in ("-u", "-g"))
    asked = spec(uid=uid, gid=gid)
    # slurmrestd's own user may not submit for alice; the job must not become its own instead.
    with pytest.raises(Rejected, match="user id"):
        local.submit(asked, SLEEP)
    assert local.find_by_name(asked.name, "alice") == []


def test_the_next_endpoint_answers(settings: dict[str, str], minted: TokenSettings) -> None:
    two = build_gateway(["http://127.0.0.1:9", settings["LAB_REST"]], minted)
    assert two.ping().up


def test_no_slurmrestd(minted: TokenSettings, spec: Make) -> None:
    nowhere = build_gateway(["http://127.0.0.1:9"], minted)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9: connection refused"):
        nowhere.submit(spec(), SLEEP)


def test_slurmctld_down_is_unavailable_and_nothing_is_submitted(room: Gateway, spec: Make) -> None:
    asked = spec()
    room.ping()
    lab("stop", "slurmctld")
    try:
        assert not room.ping().up
        with ThreadPoolExecutor(2) as callers:  # each takes Slurm 9 seconds
            submitting = callers.submit(room.submit, asked, SLEEP)
            asking = callers.submit(room.states)
            for call in (submitting, asking):
                error = call.exception()
                assert isinstance(error, Unavailable)
                assert not isinstance(error, MaybeAccepted)
                assert "slurmctld" in str(error)
    finally:
        lab("start", "slurmctld")
    wait(room.ping, lambda ping: ping.up)
    assert room.find_by_name(asked.name, "alice") == []

"""The gateway against recorded and hostile answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
import requests
import responses

from slurmrest_adapter.domain.errors import (
    ConfigError,
    Denied,
    Incompatible,
    MaybeAccepted,
    NotFound,
    RefusedIdentity,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.domain.jobs import FoundJob, JobRef, JobState
from slurmrest_adapter.domain.jobspec import GpuRequest, JobSpec
from slurmrest_adapter.slurm import negotiate
from slurmrest_adapter.slurm.base import JobCommands, SlurmGateway
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.commands import SIGNALS
from slurmrest_adapter.slurm.gateway import Gateway

BASE = "http://slurm.test:6820"
V = f"{BASE}/slurm/v0.0.42"
DB = f"{BASE}/slurmdb/v0.0.42"
TOKEN = "eyJ-static-token"
SPEC = JobSpec(name="web-0123456789ab", comment="sra1:x.y", user="alice", uid=2001, gid=2001)
Start = Callable[..., Any]


@pytest.fixture
def http() -> Any:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        for version in negotiate.OURS:
            unknown = {"status": 404, "body": "Unable", "content_type": "text/plain"}
            served: dict[str, Any] = {"json": {"pings": []}}
            mock.get(f"{BASE}/slurm/{version}/ping/", **(served if version == "v0.0.42" else unknown))
        yield mock


def gateway(**settings: Any) -> Gateway:
    token = settings.pop("token", TokenSettings("static", value=TOKEN))
    return build_gateway([BASE], token, **settings)


def sent(http: Any) -> list[requests.PreparedRequest]:
    """What was sent beside the probes of the version."""
    return [call.request for call in http.calls if not call.request.url.endswith("/ping/")]


def test_it_is_what_the_other_rooms_ask_for() -> None:
    room: SlurmGateway = gateway()
    commands: JobCommands = gateway()
    assert room is not None
    assert commands is not None


def test_ping(http: Any) -> None:
    body = {
        "pings": [
            {"hostname": "a", "pinged": "UP"},
            {"hostname": "b", "pinged": "DOWN"},
            {"hostname": "c", "responding": False, "pinged": "UP"},
        ],
        "meta": {"slurm": {"release": "24.11.5"}},
    }
    http.replace("GET", f"{V}/ping/", json=body)
    found = gateway().ping()
    assert found.release == "24.11.5"
    assert found.controllers == {"a": True, "b": False, "c": False}
    assert found.up


def test_submit_renders_the_job(http: Any) -> None:
    http.post(f"{V}/job/submit", json={"job_id": 5, "job_submit_user_msg": "hello\n"})
    spec = JobSpec(
        name="n",
        comment="c",
        user="alice",
        account="physics",
        partition="gpu",
        qos="high",
        reservation="r",
        cpus=3,
        memory_mib=512,
        gpus=(GpuRequest("gpu", "a100", 2), GpuRequest("gpu", None, 1)),
        time_limit_minutes=7,
        dependency="singleton,afterok:4",
        constraints="a100&ib",
        uid=2001,
        gid=2001,
        environment={"HOME": "/home/ü", "PATH": "/bin"},
    )
    ref = gateway().submit(spec, "#!/bin/sh\necho '$x'\n")
    assert ref == JobRef(5, message="hello")
    number = {"set": True, "infinite": False}
    assert json.loads(sent(http)[0].body or "") == {
        "job": {
            "name": "n",
            "comment": "c",
            "account": "physics",
            "partition": "gpu",
            "qos": "high",
            "reservation": "r",
            "constraints": "a100&ib",
            "dependency": "singleton,afterok:4",
            "script": "#!/bin/sh\necho '$x'\n",
            "environment": ["HOME=/home/ü", "LANG=C.UTF-8", "PATH=/bin"],
            "current_working_directory": "/",
            "standard_input": "/dev/null",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            "tasks": 1,
            "cpus_per_task": 3,
            "minimum_nodes": 1,
            "maximum_nodes": 1,
            "memory_per_node": {**number, "number": 512},
            "time_limit": {**number, "number": 7},
            "tres_per_node": "gres/gpu:a100:2,gres/gpu:1",
            "requeue": False,
        }
    }


def test_submit_sends_nothing_that_is_not_set(http: Any) -> None:
    http.post(f"{V}/job/submit", json={"job_id": 5})
    gateway().submit(SPEC, "#!/bin/sh\n")
    job = json.loads(sent(http)[0].body or "")["job"]
    absent = {"account", "partition", "qos", "reservation", "constraints", "tres_per_node", "time_limit"}
    assert absent.isdisjoint(job)
    assert {"user_id", "group_id"}.isdisjoint(job)
    assert job["dependency"] == "singleton"


@pytest.mark.parametrize("environment", [{"SLURM_JWT": "x"}, {"": "x"}, {"a=b": "x"}, {"a": "x\0"}])
def test_an_environment_that_cannot_be(http: Any, environment: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"environment\["):
        gateway().submit(JobSpec(name="n", comment="", user="alice", environment=environment), "#!/bin/sh\n")
    assert sent(http) == []


@pytest.mark.parametrize("status", [200, 201, 500, 502])
def test_a_job_id_decides_and_warnings_are_kept(http: Any, status: int) -> None:
    body = {
        "job_id": 7,
        "errors": [{"error_number": 2070, "error": "Partition down"}],
        "warnings": [{"description": "held"}, {"description": "held"}],
    }
    http.post(f"{V}/job/submit", json=body, status=status)
    assert gateway().submit(SPEC, "s") == JobRef(7, warnings=("held", "Partition down"))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"json": {"warnings": [{"description": "Expected an integer"}]}}, Rejected, "Expected an integer"),
        ({"json": {}}, Rejected, "without a job id"),
        ({"json": {"job_id": 0}}, Rejected, "without a job id"),
        ({"json": {"job_id": None}}, Rejected, "without a job id"),
        ({"json": {"job_id": -2}}, Rejected, "without a job id"),
        ({"json": {"errors": [{"error_number": 2000, "error": "Invalid partition"}]}}, Rejected, "partition"),
        (
            {"status": 422, "json": {"errors": [{"error_number": 2045, "error": "Bad account"}]}},
            Rejected,
            "Bad",
        ),
        (
            {"status": 502, "json": {"errors": [{"error_number": 1800, "error": "x"}]}},
            Unavailable,
            "slurmctld",
        ),
        (
            {"status": 504, "json": {"errors": [{"error_number": 5004, "error": "x"}]}},
            MaybeAccepted,
            "slurmctld",
        ),
        ({"status": 504, "body": "gateway time-out", "content_type": "text/plain"}, MaybeAccepted, "504"),
        ({"status": 200, "body": '{"job_', "content_type": "application/json"}, MaybeAccepted, "breaks off"),
        ({"status": 200, "body": "<html>", "content_type": "text/html"}, MaybeAccepted, "text/html"),
        ({"status": 400, "body": "bad JSON", "content_type": "text/plain"}, Rejected, "bad JSON"),
        ({"status": 401, "body": "no", "content_type": "text/plain"}, Unauthorized, "static token"),
        ({"status": 302, "headers": {"Location": "http://other/"}}, SlurmError, "redirect"),
        ({"body": requests.ConnectionError("reset")}, MaybeAccepted, "connection lost"),
        ({"body": requests.ReadTimeout("slow")}, MaybeAccepted, "nothing within"),
    ],
)
def test_a_submit_without_a_job_id_is_an_error(
    http: Any, answer: dict[str, Any], kind: type[SlurmError], words: str
) -> None:
    http.post(f"{V}/job/submit", **answer)
    with pytest.raises(SlurmError, match=words) as caught:
        gateway().submit(SPEC, "s")
    assert type(caught.value) is kind
    assert len(sent(http)) == 1  # never twice
    assert TOKEN not in repr(caught.value)


def test_connect_failure_is_no_maybe(tmp_path: Path) -> None:
    unreachable = build_gateway([f"unix://{tmp_path}/none"], TokenSettings("none"), api_version="v0.0.42")
    with pytest.raises(Unavailable) as caught:
        unreachable.submit(SPEC, "s")
    assert type(caught.value) is Unavailable


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(name="n", comment="", user="root"),
        JobSpec(name="n", comment="", user="slurm"),
        JobSpec(name="n", comment="", user="alice", uid=999),
        JobSpec(name="n", comment="", user="a b"),
        JobSpec(name="n", comment="", user="a\r\nX: y"),
        JobSpec(name="n", comment="", user=""),
    ],
)
def test_who_may_never_run(http: Any, spec: JobSpec) -> None:
    with pytest.raises(RefusedIdentity):
        gateway().submit(spec, "s")
    assert sent(http) == []


def test_without_tokens_the_owner_is_named_in_the_job(http: Any) -> None:
    http.post(f"{V}/job/submit", json={"job_id": 5})
    room = gateway(token=TokenSettings("none"))
    room.submit(SPEC, "s")
    request = sent(http)[0]
    job = json.loads(request.body or "")["job"]
    assert (job["user_id"], job["group_id"]) == (2001, 2001)
    assert not any(name.startswith("X-SLURM") for name in request.headers)
    with pytest.raises(RefusedIdentity, match="uid"):
        room.submit(JobSpec(name="n", comment="", user="alice", uid=2001), "s")


def test_states(http: Any) -> None:
    rows = [
        {"job_id": "143_1", "state": ["COMPLETED"]},
        {"job_id": "143_2", "state": ["RUNNING"]},
        {"job_id": "143_3", "state": ["FAILED"]},
        {"job_id": "145+1", "state": ["FAILED"]},
        {"job_id": "145", "state": ["RUNNING", "A_NEW_WORD"]},
        {"job_id": 146, "state": None},
        {"job_id": "147", "state": "PENDING"},
    ]
    http.get(f"{V}/jobs/state/", json={"jobs": rows})
    assert gateway().states() == {
        143: JobState(143, ("RUNNING",)),
        145: JobState(145, ("RUNNING", "A_NEW_WORD")),
        146: JobState(146, ()),
        147: JobState(147, ("PENDING",)),
    }
    assert sent(http)[0].url == f"{V}/jobs/state/"


def test_states_repeat_the_parameter_and_leave_others_out(http: Any) -> None:
    http.get(f"{V}/jobs/state/", json={"jobs": [{"job_id": "2", "state": []}, {"job_id": "9", "state": []}]})
    assert list(gateway().states([3, 2, 2])) == [2]
    assert sent(http)[0].url == f"{V}/jobs/state/?job_id=2&job_id=3"


def test_states_of_many_ask_for_all(http: Any) -> None:
    http.get(f"{V}/jobs/state/", json={"jobs": [{"job_id": str(n), "state": []} for n in range(1, 2000)]})
    assert list(gateway().states(range(1, 501))) == list(range(1, 501))
    assert sent(http)[0].url == f"{V}/jobs/state/"


def test_states_of_none_ask_nothing(http: Any) -> None:
    assert gateway().states([]) == {}
    assert sent(http) == []


@pytest.mark.parametrize("body", ['{"jobs": null}', '{"jobs": [], "x": NaN}'])
def test_states_with_nulls_and_nans(http: Any, body: str) -> None:
    http.get(f"{V}/jobs/state/", body=body, content_type="application/json")
    assert gateway().states() == {}


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"jobs": {}}',
        '{"jobs": [{"state": []}]}',
        '{"jobs": [{"job_id": "x"}]}',
        '{"jobs": [1]}',
        '{"jobs"',
        "[]",
    ],
)
def test_states_that_cannot_be_read_are_no_empty_answer(http: Any, body: str) -> None:
    http.get(f"{V}/jobs/state/", body=body, content_type="application/json")
    with pytest.raises(Unavailable):
        gateway().states()


def test_states_with_errors_in_a_200(http: Any) -> None:
    http.get(f"{V}/jobs/state/", json={"jobs": [], "errors": [{"error_number": 1800, "error": "x"}]})
    with pytest.raises(Unavailable, match="slurmctld"):
        gateway().states()


def test_job(http: Any) -> None:
    rows = [
        {"job_id": 6, "job_state": ["FAILED"]},
        {
            "job_id": 5,
            "job_state": ["RUNNING", "NEW"],
            "state_reason": "None",
            "memory_per_cpu": {"set": True, "infinite": False, "number": 100},
            "memory_per_node": {"set": False, "infinite": False, "number": 0},
            "cpus": {"set": True, "infinite": False, "number": 4},
            "time_limit": {"set": False, "infinite": True, "number": 0},
            "end_time": {"set": True, "infinite": False, "number": 0},
            "gres_detail": None,
            "exit_code": {
                "return_code": {"set": True, "number": 0},
                "signal": {"id": {"set": True, "number": 9}},
            },
        },
    ]
    http.get(f"{V}/job/5", json={"jobs": rows})
    found = gateway().job(5)
    assert (found.job_id, found.states, found.reason, found.gres) == (5, ("RUNNING", "NEW"), "", ())
    assert (found.memory_mib, found.time_limit_minutes, found.end_time) == (400, None, None)
    assert found.exit_code.words() == "signal 9"


@pytest.mark.parametrize("rows", [None, [], [{"job_id": 6}]])
def test_a_job_that_is_not_in_the_answer_is_not_found(http: Any, rows: Any) -> None:
    http.get(f"{V}/job/5", json={"jobs": rows})
    with pytest.raises(NotFound):
        gateway().job(5)


def test_an_answer_of_another_shape_is_no_answer(http: Any) -> None:
    http.get(f"{V}/job/5", json={"jobs": [{"job_id": 5, "exit_code": 3}]})
    with pytest.raises(Unavailable, match="cannot be read"):
        gateway().job(5)


def status_row(code: int) -> dict[str, Any]:
    return {
        "status": [{"error": {"code": code, "string": "short", "message": f"words {code}"}, "step_id": "5"}]
    }


def test_cancel(http: Any) -> None:
    http.delete(f"{V}/job/5", json={"status": []})
    gateway().cancel(5, "alice")
    assert sent(http)[0].url == f"{V}/job/5"
    http.replace("DELETE", f"{V}/job/5", json=status_row(2021))
    gateway().cancel(5, "alice")
    http.replace("DELETE", f"{V}/job/5", json={"errors": [{"error_number": 2021}]}, status=500)
    gateway().cancel(5, "alice")


@pytest.mark.parametrize(("code", "kind"), [(2002, Denied), (2017, NotFound), (4711, Rejected)])
def test_a_cancel_that_only_the_status_denies(http: Any, code: int, kind: type[SlurmError]) -> None:
    http.delete(f"{V}/job/5", json=status_row(code))
    with pytest.raises(kind, match=f"words {code}"):
        gateway().cancel(5, "alice")


def test_signal(http: Any) -> None:
    http.delete(f"{V}/job/5", json={"status": []})
    gateway().signal(5, "TERM", "alice")
    gateway().signal(5, "SIGUSR1", "alice", batch_only=False)
    assert [request.url for request in sent(http)] == [
        f"{V}/job/5?signal=TERM&flags=BATCH_JOB",
        f"{V}/job/5?signal=USR1&flags=FULL_JOB",
    ]


def test_a_signal_whose_answer_is_lost_is_not_sent_again(http: Any) -> None:
    http.delete(f"{V}/job/5", body=requests.ConnectionError("reset"))
    http.delete(f"{V}/job/5", json={"status": []})
    with pytest.raises(Unavailable):
        gateway().signal(5, "TERM", "alice")
    assert len(sent(http)) == 1


def test_a_cancel_whose_answer_is_lost_is_sent_again(http: Any) -> None:
    http.delete(f"{V}/job/5", body=requests.ConnectionError("reset"))
    http.delete(f"{V}/job/5", json={"status": []})
    gateway().cancel(5, "alice")
    assert len(sent(http)) == 2


@pytest.mark.parametrize("name", ["", "FOO", "term", "15", "SIG", "TERM ", "SIGSIGTERM"])
def test_an_unknown_signal_is_never_sent(http: Any, name: str) -> None:
    assert name not in SIGNALS
    with pytest.raises(ValueError, match="no signal that Slurm knows"):
        gateway().signal(5, name, "alice")
    assert sent(http) == []


def test_a_job_id_is_positive(http: Any) -> None:
    for job_id in (0, -1):
        with pytest.raises(ValueError, match="no job id"):
            gateway().cancel(job_id, "alice")
    assert sent(http) == []


def test_accounting(http: Any) -> None:
    def cpu(seconds: int, micro: int) -> dict[str, int]:
        return {"seconds": seconds, "microseconds": micro}

    def peak(count: int) -> dict[str, Any]:
        return {"requested": {"max": [{"type": "mem", "name": "", "count": count, "node": "n1", "task": 0}]}}

    tres = [
        {"type": "cpu", "name": "", "count": 2},
        {"type": "energy", "name": "", "count": -2},
        {"type": "gres", "name": "gpu:a100", "count": 1},
        {"type": "new", "name": None, "count": None},
    ]
    steps = [
        {"time": {"user": cpu(1, 500000), "system": cpu(0, 250000)}, "tres": peak(1024 * 1024 + 1)},
        {"time": {"user": cpu(2, 0), "system": None}, "tres": peak(1024), "statistics": None},
    ]
    latest = {
        "job_id": 5,
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {"submission": 200, "start": 210, "end": 0},
        "tres": {"allocated": tres, "requested": None},
        "steps": steps,
        "restart_cnt": 1,
    }
    older = {"job_id": 5, "state": {"current": ["FAILED"]}, "time": {"submission": 100}, "steps": None}
    other = {"job_id": 6, "time": {"submission": 300}}
    http.get(f"{DB}/job/5", json={"jobs": [latest, older, other]})
    found = gateway().accounting(5)
    assert found is not None
    assert (found.states, found.reason, found.end_time, found.restart_count) == (("COMPLETED",), "", None, 1)
    assert (found.cpu_user_seconds, found.cpu_system_seconds) == (3.5, 0.25)
    assert (found.max_rss_mib, found.energy_joules) == (2, None)
    assert found.tres_allocated == {"cpu": 2, "gres/gpu:a100": 1}
    assert found.tres_requested == {}


def test_accounting_of_an_unknown_job(http: Any) -> None:
    http.get(f"{DB}/job/5", json={"jobs": [{"job_id": 6}], "warnings": [{"description": "found nothing"}]})
    assert gateway().accounting(5) is None


def test_accounting_with_slurmdbd_down(http: Any) -> None:
    http.get(f"{DB}/job/5", status=502, json={"errors": [{"error_number": 7000, "error": "x"}]})
    http.get(f"{V}/jobs/state/", json={"jobs": []})
    with pytest.raises(Unavailable, match="slurmdbd"):
        gateway().accounting(5)


def test_find_by_name_asks_slurmctld_only_when_needed(http: Any) -> None:
    row = {
        "job_id": 5,
        "name": "n",
        "user": "alice",
        "state": {"current": ["RUNNING"]},
        "time": {"submission": 9},
    }
    http.get(f"{DB}/jobs/", json={"jobs": [row, {**row, "name": "N"}, {**row, "user": "bob"}]})
    assert gateway().find_by_name("n", "alice", since=4) == [FoundJob(5, ("RUNNING",), "n", "alice", "", 9)]
    assert len(sent(http)) == 1
    query = "job_name=n&users=alice&start_time=4&skip_steps=true"
    assert {*urlsplit(sent(http)[0].url or "").query.split("&")} == {*query.split("&")}


@pytest.mark.parametrize(
    "database", [{"json": {"jobs": []}}, {"status": 502, "json": {"errors": [{"error_number": 7000}]}}]
)
def test_find_by_name_finds_what_slurmdbd_does_not_show(http: Any, database: dict[str, Any]) -> None:
    http.get(f"{DB}/jobs/", **database)
    http.get(f"{V}/jobs/state/", json={"jobs": []})
    row = {"job_id": 5, "name": "n", "user_name": "alice", "comment": "c", "job_state": ["PENDING"]}
    number = {"set": True, "infinite": False, "number": 9}
    body = json.dumps({"jobs": [{**row, "submit_time": number, "x": float("nan")}, {**row, "name": "m"}]})
    http.get(f"{V}/jobs/", body=body, content_type="application/json")
    assert gateway().find_by_name("n", "alice") == [FoundJob(5, ("PENDING",), "n", "alice", "c", 9)]


def test_find_by_name_looks_for_a_waiting_job_beside_one_that_has_ended(http: Any) -> None:
    old = {
        "job_id": 5,
        "name": "n",
        "user": "alice",
        "state": {"current": ["FAILED"]},
        "time": {"submission": 9},
    }
    http.get(f"{DB}/jobs/", json={"jobs": [old]})
    number = {"set": True, "infinite": False, "number": 9}
    same = {"job_id": 5, "name": "n", "user_name": "alice", "job_state": ["FAILED"], "submit_time": number}
    new = {"job_id": 6, "name": "n", "user_name": "", "job_state": ["PENDING"]}
    other = {"job_id": 7, "name": "n", "user_name": "bob", "job_state": ["PENDING"]}
    http.get(f"{V}/jobs/", json={"jobs": [same, new, other]})
    assert [job.job_id for job in gateway().find_by_name("n", "alice")] == [5, 6]


def test_a_refused_token_is_told_from_slurmdbd_being_down(http: Any) -> None:
    http.get(f"{DB}/job/5", status=502, json={"errors": [{"error_number": 7000, "error": "no database"}]})
    http.get(f"{V}/jobs/state/", status=511, json={"errors": [{"error_number": 1007, "error": "bad"}]})
    with pytest.raises(Unauthorized):
        gateway().accounting(5)
    working: dict[str, Any] = {"json": {"jobs": []}}
    down: dict[str, Any] = {"status": 502, "json": {"errors": [{"error_number": 1800}]}}
    for state in (working, down):
        http.replace("GET", f"{V}/jobs/state/", **state)
        with pytest.raises(Unavailable, match="slurmdbd"):
            gateway().accounting(5)


def test_find_by_name_proves_absence_only_with_both(http: Any) -> None:
    http.get(f"{V}/jobs/", json={"jobs": []})
    http.get(f"{V}/jobs/state/", json={"jobs": []})
    http.get(f"{DB}/jobs/", json={"jobs": []})
    assert gateway().find_by_name("n", "alice") == []
    http.replace("GET", f"{DB}/jobs/", status=502, json={"errors": [{"error_number": 7000}]})
    with pytest.raises(Unavailable, match="cannot prove"):
        gateway().find_by_name("n", "alice")


def test_who_asks(http: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    for path in ("jobs/state/", "nodes/", "partitions/"):
        http.get(f"{V}/{path}", json={"jobs": []})
    http.get(f"{V}/job/5", json={"jobs": [{"job_id": 5}]})
    room = gateway(token=TokenSettings("hs256", key_file=str(key)), service_user="slurmrest")
    room.states([1], user="alice")
    room.nodes("alice")
    room.partitions("alice")
    room.job(5)
    room.job(5, "alice")

    def asked(request: requests.PreparedRequest) -> tuple[Any, Any]:
        token = request.headers["X-SLURM-USER-TOKEN"]
        claims = jwt.decode(token, bytes(32), algorithms=["HS256"], options={"verify_iat": False})
        return claims["sun"], request.headers["X-SLURM-USER-NAME"]

    assert [asked(request) for request in sent(http)] == [("slurmrest", "slurmrest")] * 4 + [
        ("alice", "alice")
    ]
    assert room.token_expires("alice") is not None


def test_another_users_name_travels_with_a_fixed_token(http: Any) -> None:
    http.get(f"{V}/jobs/state/", json={"jobs": []})
    room = gateway()
    room.states(user="bob")
    room.states()
    first, second = sent(http)
    assert (first.headers["X-SLURM-USER-TOKEN"], first.headers["X-SLURM-USER-NAME"]) == (TOKEN, "bob")
    assert "X-SLURM-USER-NAME" not in second.headers


def test_bulk_questions_need_somebody(http: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    room = gateway(token=TokenSettings("hs256", key_file=str(key)))
    room.ping()  # anybody may
    with pytest.raises(Unauthorized, match="service_user"):
        room.states()


def test_no_identity_sticks_between_threads(start: Start) -> None:
    server = start()
    server.body = b'{"jobs": []}'
    room = build_gateway([server.url], TokenSettings("static", value="t"), api_version="v0.0.42", pool=4)
    users = [f"user{number % 7}" for number in range(200)]
    with ThreadPoolExecutor(16) as callers:
        list(callers.map(lambda user: room.states([int(user[4:]) + 1], user), users))
    for _, path, headers, _ in server.requests:
        if "job_id=" in path:
            assert int(headers["X-SLURM-USER-NAME"][4:]) + 1 == int(path.split("=")[1])
    assert sum("job_id=" in path for _, path, _, _ in server.requests) == 200


def test_a_version_is_negotiated_once_and_a_refusal_names_both_lists() -> None:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as http:
        for number in range(30, 60):
            http.get(
                f"{BASE}/slurm/v0.0.{number}/ping/", status=404, body="Unable", content_type="text/plain"
            )
        for number in (39, 46):
            http.replace("GET", f"{BASE}/slurm/v0.0.{number}/ping/", json={})
        with pytest.raises(Incompatible) as caught:
            gateway().states()
        assert (caught.value.ours, caught.value.theirs) == (negotiate.OURS, ("v0.0.39", "v0.0.46"))
        http.replace("GET", f"{V}/ping/", json={})
        with pytest.raises(Incompatible) as caught:
            gateway(api_version="v0.0.43").states()
        assert caught.value.ours == ("v0.0.43",)
        assert caught.value.theirs == ("v0.0.39", "v0.0.42", "v0.0.46")
        for version in caught.value.ours + caught.value.theirs:
            assert version in str(caught.value)
        http.get(f"{V}/jobs/state/", json={"jobs": []})
        http.calls.reset()
        room = gateway()
        assert room.api_version is None
        room.states()
        room.states()
        assert room.api_version == "v0.0.42"
        assert len(http.calls) == 4 + 2  # v0.0.45 down to v0.0.42, then the questions
        http.replace("GET", f"{V}/jobs/state/", status=404, body="Unable", content_type="text/plain")
        with pytest.raises(Incompatible):
            room.states()
        assert room.api_version is None  # asked again the next time


def test_an_unreachable_slurmrestd_is_not_incompatible(http: Any) -> None:
    http.replace("GET", f"{V}/ping/", status=503, body="down", content_type="text/plain")
    with pytest.raises(Unavailable):
        gateway().states()


def test_an_unknown_version_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"slurm\.api_version: 'v0\.0\.7'"):
        gateway(api_version="v0.0.7")


def test_bindings_load_by_need() -> None:
    """One binding brings its own generated version only, and nothing brings one before it is chosen."""
    script = (
        "import sys, slurmrest_adapter.slurm.build, slurmrest_adapter.slurm.negotiate as n\n"
        "def loaded(): return {m.split('.')[1] for m in sys.modules if m.startswith('generated_client.v')}\n"
        "assert loaded() == set(), loaded()\n"
        "for v in sys.argv[1:]: n.load(v); assert v.replace('.', '_') in loaded()\n"
        "assert loaded() == {v.replace('.', '_') for v in sys.argv[1:]}, loaded()\n"
    )
    for version in negotiate.OURS:
        subprocess.run([sys.executable, "-c", script, version], check=True, cwd=Path(__file__).parents[3])


def test_the_body_stays_out_of_texts() -> None:
    operation = negotiate.load("v0.0.42").submit(SPEC, "a-secret-script", name_owner=False)
    assert "a-secret-script" not in repr(operation)

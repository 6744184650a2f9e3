"""The plugin API over the small Slurm in memory, as interLink's API server speaks to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from slurmrest_adapter.server.app import create_app
from slurmrest_adapter.server.health import HealthWatch
from slurmrest_adapter.server.service import GRACE_SECONDS, Service
from slurmrest_adapter.tracking.driver.loop import Loop
from tests.fakes.pods import UID, container, pod
from tests.fakes.world import World, container_record

TOKEN = b"sesame"


class Running:
    """The application without its threads: a test says when the loop looks."""

    def __init__(self, world: World, token: bytes | None = None) -> None:
        self.world = world
        self.loop = Loop(world.deps)
        self.health = HealthWatch(world.slurm, (), {"nvidia.com/gpu": "gpu"}, world.clock, "alice")
        self.health.ask()
        app = create_app(Service(world.deps, self.loop, self.health), (lambda: token) if token else None)
        self.http = TestClient(app, raise_server_exceptions=True)

    def create(self, raw: dict[str, Any], **envelope: Any) -> Any:
        return self.http.post("/create", content=json.dumps({"pod": raw, **envelope}))

    def status(self, *pods: dict[str, Any]) -> Any:
        # A GET with a body and no content type, as Go's client sends it.
        return self.http.request("GET", "/status", content=json.dumps(pods)).json()

    def job(self) -> int:
        record = self.world.deps.store.get(UID)
        assert record is not None
        assert record.job_id is not None
        return record.job_id


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(World(tmp_path))


def test_create_once_and_twice(running: Running) -> None:
    first = running.create(pod(container()))
    second = running.create(pod(container()))
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == {"PodUID": UID, "PodJID": str(running.job())}


def test_older_releases_send_a_list_of_one(running: Running) -> None:
    answer = running.http.post("/create", content=json.dumps([{"pod": pod(container()), "container": None}]))
    assert answer.status_code == 200
    answer = running.http.post("/create", content=json.dumps([{"pod": {}}, {"pod": {}}]))
    assert (answer.status_code, "one pod" in answer.text) == (400, True)


def test_go_leaves_out_the_kind(running: Running) -> None:
    raw = pod(container())
    raw.pop("kind", None)
    raw.pop("apiVersion", None)
    assert running.create(raw).status_code == 200


@pytest.mark.parametrize("body", ["", "[", "[]", "{}", '"x"', '{"pod": 5}', '{"pod": {"metadata": {}}}'])
def test_bad_bodies_are_400_and_say_what(running: Running, body: str) -> None:
    answer = running.http.post("/create", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.text.strip()
    assert running.world.deps.store.pods() == []


def test_refusals_by_who_is_at_fault(running: Running) -> None:
    stranger = pod(container())
    stranger["metadata"]["namespace"] = "strangers"
    answer = running.create(stranger)
    assert (answer.status_code, "strangers" in answer.text) == (403, True)
    answer = running.create(pod({**container(), "stdin": True}))
    assert (answer.status_code, "spec.containers[0].stdin" in answer.text) == (400, True)
    answer = running.create(pod(container()), jobScript="#!/bin/sh\n")
    assert (answer.status_code, "jobScript" in answer.text) == (400, True)


def test_an_unresolved_reference_is_refused_by_name(running: Running) -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    answer = running.create(pod({**container(), "env": env}))
    assert answer.status_code == 400
    assert "env[0].valueFrom" in answer.text


def test_status_comes_from_memory_in_the_order_asked(running: Running) -> None:
    raw = pod(container())
    running.create(raw)
    running.loop.round()
    stranger = pod(container(), uid="00000000-0000-4000-8000-000000000099", name="stranger")
    # Slurm is away; requests do not notice.
    running.world.slurm.down = True
    unknown, known = running.status(stranger, raw)
    assert unknown["JID"] == ""
    assert unknown["containers"][0]["state"]["waiting"]["reason"] == "ContainerStatusUnknown"
    assert known["UID"] == UID
    assert "queued" in known["containers"][0]["state"]["waiting"]["message"]


def test_a_pods_life(running: Running) -> None:
    raw = pod(container())
    running.create(raw)
    running.world.slurm.start(running.job())
    record = running.world.deps.store.get(UID)
    assert record is not None
    running.world.runner_writes(record, 1, None, container_record(state="running"))
    running.loop.round()
    assert "running" in running.status(raw)[0]["containers"][0]["state"]
    running.world.runner_writes(record, 2, {"exit_code": 3, "reason": None}, container_record(code=3))
    running.world.slurm.end(running.job(), "FAILED", 3, "NonZeroExitCode")
    running.loop.round()
    (entry,) = running.status(raw)
    assert entry["containers"][0]["state"]["terminated"]["exitCode"] == 3
    assert entry["phase"] == "Failed"
    # Ended and closed: nothing is asked any more, and the answer stays.
    running.loop.round()
    running.loop.round()
    assert running.status(raw)[0] == entry | {"message": running.status(raw)[0]["message"]}


def test_delete_asks_and_the_loop_ends(running: Running) -> None:
    raw = pod(container())
    for _ in range(2):
        assert running.http.post("/delete", content=json.dumps(raw)).status_code == 200
    running.create(raw)
    running.loop.round()
    assert running.http.post("/delete", content=json.dumps(raw)).status_code == 200
    running.loop.round()
    running.loop.round()
    (entry,) = running.status(raw)
    assert "terminated" in entry["containers"][0]["state"]
    assert running.http.post("/delete", content=json.dumps(raw)).status_code == 200


def test_one_question_for_all(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(container(), uid=f"00000000-0000-4000-8000-{n:012d}", name=f"p{n}") for n in range(20)]
    for raw in pods:
        running.create(raw)
    asked = []
    real = running.world.slurm.states

    def states(job_ids: Any = None, user: str | None = None) -> Any:
        asked.append(list(job_ids))
        return real(job_ids, user)

    monkeypatch.setattr(running.world.slurm, "states", states)
    running.loop.round()
    assert [len(ids) for ids in asked] == [20]


def test_the_ping_keeps_the_last_totals_for_a_while(running: Running) -> None:
    def ping() -> Any:
        return running.http.request("GET", "/status", content="[]")

    first = ping().json()
    assert first["slurm_connected"] is True
    running.world.slurm.down = True
    running.health.ask()
    second = ping().json()
    assert second["slurm_connected"] is False
    assert second["resources"] == first["resources"]
    assert second["message"]
    running.world.clock.sleep(GRACE_SECONDS + 1)
    assert ping().status_code == 503


def test_probes(running: Running) -> None:
    assert running.http.get("/healthz").status_code == 200
    # The loop's thread is not running in this test, and that is what readyz is for.
    answer = running.http.get("/readyz")
    assert (answer.status_code, "loop" in answer.text) == (503, True)
    assert running.http.get("/system-info").json()["slurm_connected"] is True


def test_the_session_header_comes_back(running: Running) -> None:
    answer = running.http.get("/system-info", headers={"InterLink-Http-Session": "abc"})
    assert answer.headers["InterLink-Http-Session"] == "abc"


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    running = Running(World(tmp_path), TOKEN)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sesame"}):
        assert running.http.get("/system-info", headers=headers).status_code == 401
    assert running.http.get("/system-info", headers={"Authorization": "Bearer sesame"}).status_code == 200
    assert running.http.get("/healthz").status_code == 200


def write_log(running: Running, *lines: str) -> None:
    record = running.world.deps.store.get(UID)
    assert record is not None
    path = running.world.shared / record.directory / "logs" / "main"
    path.mkdir(parents=True, exist_ok=True)
    text = "".join(f"2026-01-02T03:04:0{n}.000000000Z stdout F {line}\n" for n, line in enumerate(lines))
    (path / "0.log").write_text(text)
    if running.world.uid:
        import os

        if os.geteuid() == 0:
            os.chown(path / "0.log", running.world.uid, running.world.uid)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "a\nb\nc\n"),
        ({"Tail": 2}, "b\nc\n"),
        ({"Tail": 0, "Bytes": 3}, "a\nb"),
        ({"Timestamps": True, "Tail": 1}, "2026-01-02T03:04:02.000000000Z c\n"),
        ({"SinceTime": "2026-01-02T03:04:01Z"}, "b\nc\n"),
        ({"SinceTime": "0001-01-01T00:00:00Z", "SinceSeconds": 0}, "a\nb\nc\n"),
        ({"SinceTime": "2026-01-02T05:04:02+02:00"}, "c\n"),
    ],
)
def test_log_options(running: Running, options: dict[str, Any], expected: str) -> None:
    running.create(pod(container()))
    write_log(running, "a", "b", "c")
    body = {"PodUID": UID, "ContainerName": "main", "Opts": options}
    answer = running.http.request("GET", "/getLogs", content=json.dumps(body))
    assert (answer.status_code, answer.text) == (200, expected)


def test_logs_that_cannot_be(running: Running) -> None:
    running.create(pod(container()))
    bodies: list[dict[str, Any]] = [
        {"PodUID": UID, "ContainerName": "other", "Opts": {}},
        {"PodUID": "nobody", "ContainerName": "main", "Opts": {}},
        {"PodUID": UID, "ContainerName": "main", "Opts": {"Previous": True}},
        {"PodUID": UID, "ContainerName": "main", "Opts": {"Tail": -1}},
        {"PodUID": UID, "ContainerName": "main", "Opts": {"SinceTime": "yesterday"}},
    ]
    for body in bodies:
        answer = running.http.request("GET", "/getLogs", content=json.dumps(body))
        assert answer.status_code == 400, body
    # A container that has not started has no log, which is no error.
    by_name = {"Namespace": "physics", "PodName": "train", "ContainerName": "main", "Opts": None}
    assert running.http.request("POST", "/getLogs", content=json.dumps(by_name)).text == ""

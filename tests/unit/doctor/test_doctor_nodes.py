"""What a node told and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmrest_adapter.doctor import findings, nodes, script, told
from slurmrest_adapter.doctor.jobs import NodeJob
from slurmrest_adapter.doctor.verdict import Check
from slurmrest_adapter.domain.errors import AdapterError, Rejected, Unavailable
from slurmrest_adapter.domain.jobs import ExitCode, JobInfo, JobRef
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.runtimes.script import digest


def job(found: Any = None, code: int = 0, **values: Any) -> NodeJob:
    made = NodeJob("main", Owner("alice", uid=1001, gid=1001), nonce="n")
    made.spec = JobSpec(name="x", comment="c", user="alice", partition="main", memory_mib=100)
    made.ref = JobRef(7)
    state = "FAILED" if code else "COMPLETED"
    made.info = JobInfo(
        7, (state,), name="x", user="alice", partition="main", comment="c", memory_mib=100,
        nodes="n1", exit_code=ExitCode(code),
    )  # fmt: skip
    made.first = made.info
    made.over = True
    made.found = told.parse(json.dumps(found).encode()) if found is not None else None
    for name, value in values.items():
        setattr(made, name, value)
    return made


def of_node(
    found: Any, mode: str = "auto", gres: str = "gpu:a100:4", python: str = "python3", code: int = 0
) -> dict[str, Check]:
    checks = nodes.of_node(job(found, code), "/shared/pods", python, mode, gres)
    assert [c.name for c in checks if c.name in nodes.ON_NODE] == [c.name for c in checks]
    assert {c.name for c in checks} == set(nodes.ON_NODE)  # every one, once
    assert len(checks) == len(nodes.ON_NODE)
    assert all(c.advice for c in checks if c.verdict.value in ("warn", "fail"))
    return {c.name: c for c in checks}


def changed(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.verdict.value for name, check in checks.items() if check.verdict.value != "ok"}


def test_a_good_node(seen: dict[str, Any]) -> None:
    checks = of_node(seen)
    assert changed(checks) == {}
    assert checks["python"].subject == "main, n1"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"nonce": "other"}, {"shared-dir-on-node": "fail"}),
        ({"directory": {"uid": 65534, "me": 1001}}, {"shared-dir-on-node": "fail"}),
        (
            {"apptainer": {"path": None, "version": None}, "plain": {"code": 127, "err": "none"}},
            {"apptainer": "fail"},
        ),
        ({"squashfuse": None}, {"squashfuse": "warn"}),
        ({"fuse": False}, {"fuse": "warn"}),
        ({"devices": {"nvidia": [], "control": [], "other": []}}, {"gpu-devices": "fail"}),
        ({"devices": {"nvidia": [], "control": [], "other": ["kfd", "dri"]}}, {}),
        ({"devices": {"nvidia": ["nvidia0"], "control": [], "other": []}}, {"gpu-devices": "fail"}),
        ({"cache": {"path": "/c", "writable": False, "free_mib": 90000}}, {"image-cache": "fail"}),
        ({"cache": {"path": "/c", "writable": True, "free_mib": 100}}, {"image-cache": "warn"}),
    ],
)  # fmt: skip
def test_what_a_node_lacks(seen: dict[str, Any], change: dict[str, Any], expected: dict[str, str]) -> None:
    assert changed(of_node({**seen, **change})) == expected


def test_a_node_without_gpus(seen: dict[str, Any]) -> None:
    seen["devices"] = {"nvidia": [], "control": [], "other": []}
    assert changed(of_node(seen, gres="")) == {"gpu-devices": "skip"}


NO_NAMESPACES = {"available": False, "why": "unshare: Operation not permitted", "code": None, "err": ""}


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [("auto", {"namespaces": "warn"}), ("sandbox", {"namespaces": "fail"}), ("plain", {})],
)
def test_no_namespaces(seen: dict[str, Any], mode: str, verdict: dict[str, str]) -> None:
    checks = of_node({**seen, "sandbox": NO_NAMESPACES}, mode)
    assert changed(checks) == verdict
    assert "Operation not permitted" in checks["namespaces"].seen


def test_an_apptainer_that_runs_nothing(seen: dict[str, Any]) -> None:
    broken = {"code": 255, "err": "FATAL: no user namespaces"}
    checks = of_node({**seen, "sandbox": NO_NAMESPACES, "plain": broken})
    assert changed(checks) == {"apptainer": "fail", "namespaces": "warn"}
    assert "no user namespaces" in checks["apptainer"].seen


@pytest.mark.parametrize(
    ("told", "verdict", "words"),
    [
        (digest(), "ok", "this release's"),
        ("0" * 64, "fail", "another release's"),
        (" No such file or directory", "fail", "cannot be read: No such file"),
        (None, "fail", "cannot be read: not told"),
    ],
)
def test_an_installed_runner(seen: dict[str, Any], told: str | None, verdict: str, words: str) -> None:
    checks = nodes.of_node(
        job({**seen, "runner": told}), "/shared/pods", "python3", "auto", "gpu:a100:4", "/opt/podrunner"
    )
    check = checks[-1]
    assert (check.name, check.verdict.value) == ("pod-runner", verdict)
    assert words in check.seen
    assert verdict == "ok" or "slurmrest-adapter podrunner > /opt/podrunner" in check.advice


def test_an_interpreter_elsewhere(seen: dict[str, Any]) -> None:
    assert changed(of_node(seen, python="/opt/python3")) == {"python": "warn"}
    assert changed(of_node(seen, python="/usr/bin/python3")) == {}


def test_no_python(seen: dict[str, Any]) -> None:
    checks = of_node({"node": "n1", "python": None, "version": "2.7.18", "apptainer_there": False})
    skipped = dict.fromkeys(nodes.ON_NODE[3:], "skip")
    assert changed(checks) == {"python": "fail", "apptainer": "fail", **skipped}
    assert "2.7.18" in checks["python"].seen


@pytest.mark.parametrize("code", [script.NO_SHARED, script.NO_DIRECTORY, script.NOT_WRITABLE])
def test_a_shared_directory_that_is_not(code: int) -> None:
    checks = of_node(None, code=code)
    assert checks["shared-dir-on-node"].verdict.value == "fail"
    assert "/shared/pods" in checks["shared-dir-on-node"].seen
    assert {c.verdict.value for name, c in checks.items() if name != "shared-dir-on-node"} == {"skip"}


def test_nothing_was_told() -> None:
    assert set(changed(of_node(None, code=1)).values()) == {"skip"}
    assert set(changed(of_node({"broken": "KeyError"})).values()) == {"skip"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"python": {}}',
        '{"python": null}',
        '{"broken": 1}',
        '{"python": 7, "node": 3}',
    ],
)
def test_what_a_user_may_have_written_instead(text: str) -> None:
    with pytest.raises(AdapterError):
        told.parse(text.encode())
    with pytest.raises(AdapterError):
        told.parse(b"\xff" + text.encode())


def test_words_cannot_move_the_cursor(seen: dict[str, Any]) -> None:
    seen["python"]["version"] = "3.9\x1b[2J\x07"
    assert of_node(seen)["python"].seen.isprintable()


def verdicts(made: NodeJob) -> dict[str, str]:
    return {check.name: check.verdict.value for check in findings.of_job(made, 60)}


def test_the_job(seen: dict[str, Any]) -> None:
    good = {"submit-plugins": "ok", "job": "ok"}
    assert verdicts(job(seen)) == good
    assert verdicts(job(None, 1)) == {**good, "job": "fail"}
    assert verdicts(job({"broken": "OSError"})) == {**good, "job": "fail"}
    assert verdicts(job(None, untrusted="a link")) == {**good, "job": "fail"}
    assert verdicts(job(over=False)) == {**good, "job": "warn"}
    assert verdicts(job(error=Unavailable("gone"))) == {**good, "job": "fail"}
    assert verdicts(job(seen, first=None)) == {"submit-plugins": "skip", "job": "ok"}
    assert verdicts(job(ref=None, error=Rejected(2045, "Invalid account"))) == {"job": "fail"}


def test_what_the_site_changed(seen: dict[str, Any]) -> None:
    made = job(seen, ref=JobRef(7, warnings=("be quick",), message="welcome"))
    assert made.info is not None
    made.first = JobInfo(
        7, ("PENDING",), name="x", user="alice", partition="slow", comment="c", memory_mib=100
    )
    check = findings.of_job(made, 60)[0]
    assert check.verdict.value == "warn"
    assert "partition main → slow" in check.seen
    assert "be quick" in check.seen
    assert "welcome" in check.seen
    assert "memory" not in check.seen


def of_site(*found: Any, accounting: bool = True, why: str = "") -> dict[tuple[str, str], str]:
    checks = findings.of_site([job(each) for each in found], why, accounting)
    return {(c.name, c.subject): c.verdict.value for c in checks}


def test_the_site(seen: dict[str, Any]) -> None:
    flags, registry = ("accounting-flags", ""), ("registry", "registry:5000")
    assert of_site(seen) == {flags: "ok", registry: "ok"}
    assert of_site(seen, accounting=False)[flags] == "skip"
    assert of_site(why="no job") == {flags: "skip"}
    assert of_site({**seen, "settings": None})[flags] == "skip"
    assert of_site({**seen, "settings": {"AccountingStoreFlags": "job_comment_not"}})[flags] == "warn"
    other = {**seen, "node": "n2", "registries": {"registry:5000": "refused"}}
    assert of_site(seen, other)[registry] == "warn"


def test_plans_in_the_environment(seen: dict[str, Any]) -> None:
    def verdict(**settings: str) -> str:
        return findings.of_delivery([job({**seen, "settings": settings})], "").verdict.value

    database = {"AccountingStorageType": "accounting_storage/slurmdbd"}
    assert verdict(**database, AccountingStoreFlags="job_comment,job_env") == "warn"
    assert verdict(**database, AccountingStoreFlags="job_comment") == "ok"
    assert verdict(**database) == "ok"
    assert verdict(AccountingStorageType="", AccountingStoreFlags="job_env") == "ok"
    unknown = findings.of_delivery([], "no job was asked for")
    assert unknown.verdict.value == "warn"
    assert "no job was asked for" in unknown.seen
    assert "job_env" in unknown.seen

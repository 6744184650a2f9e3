"""The table of outcomes (README, "Outcomes"), row by row, and the rules around it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.jobs import ExitCode, JobInfo
from slurmrest_adapter.domain.states import TERMINAL, Kind, classify
from slurmrest_adapter.translate.status import ENDINGS, Facts, PodStatus, pod_status, rfc3339

ONE = ({"name": "main", "init": False, "image": "busybox"},)
TWO = (*ONE, {"name": "side", "init": False, "image": "busybox"})
WITH_INIT = ({"name": "first", "init": True, "image": "busybox"}, *TWO)


def record(name: str = "main", state: str = "terminated", **fields: Any) -> dict[str, Any]:
    """A container's record as the runner writes it."""
    done = state == "terminated"
    return {
        "name": name, "state": state, "reason": "Completed" if done else None, "message": "",
        "exit_code": 0 if done else None, "signal": None,
        "started_at": 1000.5 if state != "waiting" else None, "finished_at": 1060.2 if done else None,
        "image_id": "sha256:1", "restart_count": 0, "gpus": ["0"], **fields,
    }  # fmt: skip


def failed(code: int, name: str = "main", reason: str = "Error", **fields: Any) -> dict[str, Any]:
    return record(name, exit_code=code, reason=reason, **fields)


def status(
    states: str | tuple[str, ...],
    records: list[dict[str, Any]] | None = None,
    *,
    containers: Any = ONE,
    reason: str = "None",
    exit_code: ExitCode | None = None,
    end: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    **facts: Any,
) -> PodStatus:
    words = states.split() if isinstance(states, str) else states
    info = JobInfo(
        77, tuple(words), reason=reason, exit_code=exit_code or ExitCode(0), start_time=1000, end_time=1060,
        **{"nodes": "n1", **(job or {})},
    )  # fmt: skip
    runner: dict[str, Any] = (
        {} if records is None else {"containers": records, "end": end, "job": {"gpus": []}}
    )
    return pod_status(Facts(containers, info, classify(words, reason), runner, **facts))


def terminated(found: PodStatus, index: int = 0) -> Any:
    return found.containers[index]["state"]["terminated"]


def outcome(found: PodStatus, index: int = 0) -> tuple[Any, ...]:
    """Phase, pod's reason, container's reason and exit code."""
    end = terminated(found, index)
    return found.phase, found.reason, end["reason"], end["exitCode"]


def test_exit_by_itself() -> None:
    good = status("COMPLETED", [record()])
    assert outcome(good) == ("Succeeded", "", "Completed", 0)
    assert good.exit_code == 0
    bad = status("FAILED", [failed(3)], reason="NonZeroExitCode", exit_code=ExitCode(3))
    assert outcome(bad) == ("Failed", "", "Error", 3)
    assert bad.exit_code == 3
    assert "Slurm job 77" in bad.message
    assert "state FAILED, reason NonZeroExitCode, exit code 3" in bad.message


def test_killed_by_a_signal() -> None:
    found = status("FAILED", [failed(139, signal=11)])
    assert outcome(found) == ("Failed", "", "Error", 139)
    assert terminated(found)["signal"] == 11


@pytest.mark.parametrize("code", [126, 127])
def test_command_not_found_or_not_executable(code: int) -> None:
    found = status("FAILED", [failed(code, reason="ContainerCannotRun")])
    assert outcome(found) == ("Failed", "", "ContainerCannotRun", code)


def test_an_image_that_cannot_be_had() -> None:
    found = status("FAILED", [failed(125, reason="ErrImagePull", message="no such image")])
    assert outcome(found) == ("Failed", "", "ErrImagePull", 125)
    assert terminated(found)["message"] == "no such image"
    waiting = status("RUNNING", [record(state="waiting", reason="ErrImagePull")])
    assert waiting.phase == "Pending"
    assert waiting.containers[0]["state"]["waiting"]["reason"] == "ErrImagePull"


@pytest.mark.parametrize(
    ("word", "pod_reason", "container_reason"),
    [
        ("TIMEOUT", "DeadlineExceeded", "Error"),
        ("DEADLINE", "DeadlineExceeded", "Error"),
        ("CANCELLED", "SlurmJobCancelled", "Error"),
        ("OUT_OF_MEMORY", "", "OOMKilled"),
        ("NODE_FAIL", "NodeLost", "ContainerStatusUnknown"),
        ("BOOT_FAIL", "SlurmLaunchFailed", "ContainerStatusUnknown"),
        ("FAILED LAUNCH_FAILED", "SlurmLaunchFailed", "ContainerStatusUnknown"),
        ("PREEMPTED", "Preempted", "Error"),
        ("COMPLETED", "", "ContainerStatusUnknown"),
        ("FAILED", "", "ContainerStatusUnknown"),
    ],
)
def test_without_a_record_the_jobs_end_decides(word: str, pod_reason: str, container_reason: str) -> None:
    for records in (None, [record(state="running")], [record(state="waiting")]):
        found = status(word, records)
        assert outcome(found) == ("Failed", pod_reason, container_reason, 137)
        assert found.exit_code == 137
        assert "before the container's own end was recorded" in terminated(found)["message"]
    assert terminated(status(word, [record(state="running")]))["startedAt"] == rfc3339(1000)


@pytest.mark.parametrize("nodes", ["c7", ""])
def test_a_node_that_failed_is_named(nodes: str) -> None:
    for word, words in (("NODE_FAIL", "lost its node"), ("BOOT_FAIL", "could not boot its node")):
        found = status(word, None, job={"nodes": nodes})
        assert f"Slurm job 77 {words}{nodes and ' ' + nodes}: state {word}" in found.message
    assert "c7" not in status("CANCELLED", None, job={"nodes": nodes}).message


@pytest.mark.parametrize("word", ["TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"])
def test_a_record_stands_whatever_ended_the_job(word: str) -> None:
    found = status(word, [failed(143), record("side")], containers=TWO)
    assert outcome(found)[2:] == ("Error", 143)
    assert outcome(found, 1)[2:] == ("Completed", 0)
    assert (found.phase, found.exit_code) == ("Failed", 143)
    # Even where every container ended well the pod has failed, and says so with its code.
    well = status(word, [record()])
    assert (well.phase, well.exit_code, terminated(well)["exitCode"]) == ("Failed", 137, 0)


def test_out_of_memory_names_the_killer() -> None:
    found = status("OUT_OF_MEMORY", [failed(137, signal=9), failed(143, "side", signal=15)], containers=TWO)
    assert outcome(found)[2:] == ("OOMKilled", 137)
    assert outcome(found, 1)[2:] == ("Error", 143)


def test_preempted_has_its_condition() -> None:
    (condition,) = status("PREEMPTED", [failed(143)]).conditions
    assert condition["type"] == "DisruptionTarget"
    assert condition["status"] == "True"
    assert condition["lastTransitionTime"] == rfc3339(1060)
    assert status("CANCELLED").conditions == ()
    # Requeued: it is no end.
    assert status("PREEMPTED REQUEUED").conditions == ()
    assert status("PREEMPTED REQUEUED").phase == "Pending"


def test_who_cancelled() -> None:
    found = status("CANCELLED", [failed(143)], killed_by="root")
    assert (found.phase, found.reason) == ("Failed", "SlurmJobCancelled")
    assert "by user root" in found.message


def test_the_pods_own_deletion() -> None:
    for word in ("CANCELLED", "FAILED"):
        found = status(word, [failed(143)], deleting=True, killed_by="alice")
        assert (found.phase, found.reason) == ("Failed", "")
        assert outcome(found)[2:] == ("Error", 143)
        assert "deletion" in found.message
        assert "by user" not in found.message
    lost = status("CANCELLED", deleting=True)
    assert outcome(lost) == ("Failed", "", "Error", 137)
    assert status("COMPLETED", [record()], deleting=True).phase == "Succeeded"


def test_the_pods_own_deadline() -> None:
    end = {"exit_code": 143, "reason": "DeadlineExceeded", "message": ""}
    found = status("FAILED", [failed(143)], end=end)
    assert outcome(found) == ("Failed", "DeadlineExceeded", "Error", 143)
    assert "activeDeadlineSeconds" in found.message
    well = status("COMPLETED", [record()], end={**end, "exit_code": 137})
    assert (well.phase, well.reason, well.exit_code) == ("Failed", "DeadlineExceeded", 137)


def test_a_completed_job_without_a_record_is_never_a_success() -> None:
    for records in (None, [], [record("side")], [record("main", state="running"), record("side")]):
        found = status("COMPLETED", records, containers=TWO)
        assert found.phase == "Failed"
        assert outcome(found)[2:] == ("ContainerStatusUnknown", 137)
    assert "no record was found of container main" in status("COMPLETED", []).message


def test_a_failed_init_container_leaves_the_others_waiting() -> None:
    records = [
        failed(4, "first"),
        record("main", "waiting", reason="PodInitializing"),
        record("side", "waiting", reason="PodInitializing"),
    ]
    end = {"exit_code": 4, "reason": None, "message": ""}
    found = status("FAILED", records, containers=WITH_INIT, end=end, exit_code=ExitCode(4))
    assert (found.phase, found.exit_code) == ("Failed", 4)
    assert found.init_containers[0]["state"]["terminated"]["exitCode"] == 4
    assert not found.init_containers[0]["ready"]
    assert [c["state"] for c in found.containers] == [{"waiting": {"reason": "PodInitializing"}}] * 2


def test_what_the_runner_could_not_do_is_in_the_message() -> None:
    end = {"exit_code": 125, "reason": None, "message": "no sandbox on this node: no user namespaces"}
    found = status("FAILED", [record(state="waiting")], end=end, exit_code=ExitCode(125))
    assert (found.phase, found.exit_code) == ("Failed", 137)
    assert "no sandbox on this node" in found.message


def test_the_first_failed_container_of_the_spec_gives_the_code() -> None:
    found = status("FAILED", [record(), failed(5, "side")], containers=TWO)
    assert found.exit_code == 5
    found = status("FAILED", [failed(6), failed(5, "side")], containers=TWO)
    assert found.exit_code == 6
    # … not the first in the runner's file.
    found = status("FAILED", [failed(5, "side"), failed(6)], containers=TWO)
    assert found.exit_code == 6


@pytest.mark.parametrize(
    ("states", "reason", "words"),
    [
        ("PENDING", "Resources", "is queued: Resources"),
        ("PENDING", "None", "is queued: no reason given yet"),
        ("PENDING", "JobHeldUser", "is held: JobHeldUser"),
        ("CANCELLED REQUEUED", "BeginTime", "is queued: BeginTime"),
    ],
)
def test_pending_says_why(states: str, reason: str, words: str) -> None:
    found = status(states, reason=reason)
    assert (found.phase, found.exit_code, found.start_time) == ("Pending", None, "")
    assert found.message == f"Slurm job 77 {words}"
    waiting = found.containers[0]["state"]["waiting"]
    assert (waiting["reason"], waiting["message"]) == ("ContainerCreating", found.message)
    more = status(states, reason=reason, job={"description": "Nodes are down"})
    assert more.message.endswith("(Nodes are down)")


def test_starting_and_running() -> None:
    starting = status("RUNNING CONFIGURING")
    assert starting.phase == "Pending"
    init = status("RUNNING", [record("first", "running"), record("main", "waiting")], containers=WITH_INIT)
    assert init.phase == "Pending"
    assert init.init_containers[0]["state"] == {"running": {"startedAt": rfc3339(1000)}}
    running = status("RUNNING", [record("first"), record("main", "running")], containers=WITH_INIT)
    assert (running.phase, running.node, running.start_time) == ("Running", "n1", rfc3339(1000))
    assert running.init_containers[0]["ready"]
    assert running.containers[0]["ready"]
    assert not running.containers[1]["ready"]
    half = status("RUNNING", [failed(3), record("side", "running")], containers=TWO)
    assert (half.phase, half.exit_code) == ("Running", None)
    finishing = status("COMPLETED COMPLETING", [record()])
    assert (finishing.phase, finishing.exit_code) == ("Running", None)


def test_an_unknown_state_is_no_end() -> None:
    found = status("ON_FIRE", [record(state="running")])
    assert (found.phase, found.exit_code) == ("Running", None)
    assert "ON_FIRE, which says neither that it runs nor that it ended" in found.message
    assert status("ON_FIRE").phase == "Pending"


def test_before_the_first_look() -> None:
    found = pod_status(Facts(ONE, None, classify([]), {}))
    assert (found.phase, found.message, found.node) == ("Pending", "the job is being submitted", "")


def test_a_refused_submit() -> None:
    found = pod_status(Facts(ONE, None, classify([]), {}, refused="Invalid account"))
    assert outcome(found) == ("Failed", "SlurmRejected", "Error", 137)
    assert found.message == "the job was refused: Invalid account"
    gone = pod_status(Facts(ONE, None, classify([]), {}, refused="deleted first", deleting=True))
    assert (gone.phase, gone.reason) == ("Failed", "")
    assert gone.message == "the job was not made: deleted first"


def test_not_reachable_changes_nothing_but_the_message() -> None:
    for states in ("RUNNING", "PENDING", "COMPLETED"):
        well, away = (status(states, [record()], unreachable=why) for why in ("", "connection refused"))
        assert away.message == f"{well.message}; Slurm could not be asked just now: connection refused"
        assert (away.phase, away.containers, away.exit_code) == (well.phase, well.containers, well.exit_code)


def test_gpus_are_slurms_word_else_the_runners() -> None:
    assert status("RUNNING", job={"gres": ("gpu:a100:2(IDX:1-2)",)}).gpus == (1, 2)
    job = JobInfo(77, ("COMPLETED",))
    runner = {"containers": [], "job": {"gpus": ["3", "0", "MIG-uuid", "²"]}}
    assert pod_status(Facts(ONE, job, classify(["COMPLETED"]), runner)).gpus == (3, 0)


def test_notes_come_last() -> None:
    assert status("COMPLETED", [record()], notes=["one", "two"]).message.endswith("; one; two")


def test_every_outcome_has_its_row() -> None:
    assert set(ENDINGS) == TERMINAL | {"LAUNCH_FAILED"}


RECORDS = st.sampled_from(["none", "waiting", "running", "good", "bad", "killed"])
WORDS = st.sampled_from(sorted(TERMINAL | {"PENDING", "RUNNING", "SUSPENDED", "ON_FIRE"}))
FLAGS = st.sets(st.sampled_from(["COMPLETING", "REQUEUED", "LAUNCH_FAILED", "CONFIGURING", "REQUEUE_HOLD"]))


@given(WORDS, FLAGS, st.lists(RECORDS, min_size=3, max_size=3), st.booleans(), st.booleans())
def test_the_kubelets_rules_hold(
    word: str, flags: set[str], kinds: list[str], deleting: bool, ended_itself: bool
) -> None:
    records = []
    for container, kind in zip(WITH_INIT, kinds, strict=True):
        name = str(container["name"])
        match kind:
            case "waiting" | "running":
                records.append(record(name, kind))
            case "good":
                records.append(record(name))
            case "bad":
                records.append(failed(3, name))
            case "killed":
                records.append(failed(137, name, signal=9))
    end = {"exit_code": 0, "reason": None, "message": ""} if ended_itself else None
    states = (word, *sorted(flags))
    found = status(states, records, containers=WITH_INIT, end=end, deleting=deleting)
    standing = classify(states)
    assert (found.exit_code is not None) == (found.phase in ("Succeeded", "Failed")) == standing.ended
    assert (found.exit_code == 0) == (found.phase == "Succeeded")
    assert "77" in found.message
    if found.phase == "Succeeded":
        assert set(kinds) == {"good"}
    if standing.ended:
        assert word in found.message
        assert "reason none" in found.message
        assert "exit code 0" in found.message
        assert not any("running" in c["state"] for c in (*found.init_containers, *found.containers))
    if standing.kind is Kind.UNKNOWN:
        assert found.phase in ("Pending", "Running")
    for name, kind in zip(("first", "main", "side"), kinds, strict=True):
        (shown,) = [c for c in (*found.init_containers, *found.containers) if c["name"] == name]
        assert len(shown["state"]) == 1
        if kind in ("good", "bad", "killed"):
            assert shown["state"]["terminated"]["exitCode"] == {"good": 0, "bad": 3, "killed": 137}[kind]
        else:
            assert shown["state"].get("terminated", {}).get("exitCode") in (None, 137)

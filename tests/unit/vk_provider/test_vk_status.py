"""The kubelet's rules for a pod's status."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_provider import status
from vk_provider.containers import time_of
from vk_provider.deadline import seconds_left
from vk_provider.status import Place, changes, has_ended, held_back, mirrored

T0, T1 = "2026-11-30T10:00:00Z", "2026-11-30T10:00:05Z"
NAMES = ("a", "b")

WAITING = {"waiting": {"reason": "ContainerCreating", "message": "queued"}}
RUNNING = {"running": {"startedAt": "2026-11-30T11:00:00.123+01:00"}}


def ended(code: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}


def told(*states: dict[str, Any], inits: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    def statuses(prefix: str, group: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
        names = [f"{prefix}{n}" for n in "abcdef"]
        return [
            {"name": name, "state": state, "ready": "running" in state, "restartCount": 0}
            for name, state in zip(names, group, strict=False)
        ]

    return {"JID": "1", "containers": statuses("", states), "initContainers": statuses("i", inits), **more}


def pod(apps: int = 1, inits: int = 0, **known: Any) -> dict[str, Any]:
    def containers(prefix: str, count: int) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{'abcdef'[n]}", "image": "busybox"} for n in range(count)]

    spec = {
        "restartPolicy": "Never",
        "containers": containers("", apps),
        "initContainers": containers("i", inits),
    }
    return {"metadata": {"uid": "u"}, "spec": spec, "status": known}


def at(now: str) -> Place:
    return Place(now, "10.0.0.1", "10.0.0.2")


def condition(new: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(dict(each) for each in new["conditions"] if each["type"] == kind)


def applied(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The pod after a strategic merge patch of its status."""
    old = body["status"]
    kept = {each["type"]: each for each in old.get("conditions", ())}
    kept |= {each["type"]: {**kept.get(each["type"], {}), **each} for each in patch.get("conditions", ())}
    new = {**old, **patch, "conditions": list(kept.values())}
    return {**body, "status": {key: value for key, value in new.items() if value is not None}}


def test_phases() -> None:
    cases = [
        (pod(2), told(WAITING, WAITING), "Pending"),
        (pod(2), told(RUNNING, WAITING), "Running"),
        (pod(2), told(ended(), RUNNING), "Running"),
        (pod(2), told(ended(1), RUNNING), "Running"),
        (pod(2), told(ended(), ended()), "Succeeded"),
        (pod(2), told(ended(), ended(3)), "Failed"),
        (pod(1, 1), told(WAITING, inits=(RUNNING,)), "Pending"),
        (pod(1, 1), told(WAITING, inits=(ended(1),)), "Failed"),
        (pod(1, 1), told(ended(), inits=(ended(1),)), "Failed"),
        (pod(1, 1), told(ended(), inits=(ended(),)), "Succeeded"),
        (pod(), told(ended(), phase="Failed", reason="NodeLost"), "Failed"),
        (pod(), told(ended(1), phase="Succeeded"), "Failed"),
        (pod(), told(RUNNING, phase="Florid"), "Running"),
    ]
    for body, entry, phase in cases:
        assert mirrored(body, entry, at(T0))["phase"] == phase, entry


def test_a_container_without_a_record_at_the_end_is_no_success() -> None:
    new = mirrored(pod(2), told(ended()), at(T0))
    assert new["phase"] == "Failed"
    missing = new["containerStatuses"][1]["state"]["terminated"]
    assert (missing["exitCode"], missing["reason"]) == (137, "ContainerStatusUnknown")


def test_an_end_without_an_exit_code_is_no_success() -> None:
    new = mirrored(pod(), told({"terminated": {"reason": "Completed"}}), at(T0))
    assert new["phase"] == "Failed"
    assert new["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_transition_times_move_only_when_the_status_flips() -> None:
    body = pod()
    body = applied(body, changes(body["status"], mirrored(body, told(WAITING), at(T0))))
    again = mirrored(body, told(RUNNING), at(T1))
    assert condition(again, "Ready")["lastTransitionTime"] == T1
    assert condition(again, "Initialized")["lastTransitionTime"] == T0
    assert again["startTime"] == T0


def test_nothing_new_is_nothing_to_write() -> None:
    body = pod(2, 1)
    entry = told(RUNNING, RUNNING, inits=(ended(),))
    body = applied(body, changes(body["status"], mirrored(body, entry, at(T0))))
    assert changes(body["status"], mirrored(body, entry, at(T1))) == {}
    # As API servers give it back: without empty values.
    for each in body["status"]["containerStatuses"]:
        each.pop("lastState")
        each.pop("imageID")
    assert changes(body["status"], mirrored(body, entry, at(T1))) == {}


def test_conditions_of_others_are_left_alone() -> None:
    gate = {"type": "example.com/gate", "status": "False", "lastTransitionTime": T0}
    body = pod(conditions=[gate])
    body["spec"]["readinessGates"] = [{"conditionType": "example.com/gate"}]
    new = mirrored(body, told(RUNNING), at(T1))
    assert condition(new, "ContainersReady")["status"] == "True"
    assert condition(new, "Ready")["status"] == "False"
    patch = changes(body["status"], new)
    assert all(each["type"] != gate["type"] for each in patch["conditions"])


def test_a_waiting_message_that_goes_away_is_taken_away() -> None:
    body = pod(reason="Old", message="old", phase="Pending")
    patch = changes(body["status"], mirrored(body, told(RUNNING), at(T0)))
    assert (patch["reason"], patch["message"]) == (None, None)


def between_runs(code: int) -> dict[str, Any]:
    """An answer: the container ended with `code` and waits for its next start."""
    entry = told({"waiting": {"reason": "CrashLoopBackOff"}}, phase="Running")
    entry["containers"][0]["lastState"] = ended(code)
    return entry


@pytest.mark.parametrize(
    ("policy", "code", "waits"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 1, True),
        ("OnFailure", 0, False),
        ("Never", 1, False),
    ],
)
def test_a_container_that_waits_for_its_next_start(policy: str, code: int, waits: bool) -> None:
    body = pod()
    body["spec"]["restartPolicy"] = policy
    body["status"] = mirrored(body, told(ended(code), phase="Running"), at(T0))
    state = mirrored(body, between_runs(code), at(T1))["containerStatuses"][0]["state"]
    assert list(state) == ["waiting" if waits else "terminated"]
    # The word about another end than the one that is known is an old one.
    state = mirrored(body, between_runs(code + 1), at(T1))["containerStatuses"][0]["state"]
    assert list(state) == ["terminated"]


@pytest.mark.parametrize(("own", "code", "waits"), [("Always", 0, True), (None, 0, False), (None, 1, True)])
def test_an_init_container_that_waits_for_its_next_start(own: str | None, code: int, waits: bool) -> None:
    body = pod(1, 1)
    body["spec"]["restartPolicy"] = "Always"
    if own:
        body["spec"]["initContainers"][0]["restartPolicy"] = own
    body["status"] = mirrored(body, told(WAITING, inits=(ended(code),), phase="Pending"), at(T0))
    entry = told(WAITING, inits=({"waiting": {"reason": "CrashLoopBackOff"}},), phase="Pending")
    entry["initContainers"][0]["lastState"] = ended(code)
    state = mirrored(body, entry, at(T1))["initContainerStatuses"][0]["state"]
    assert list(state) == ["waiting" if waits else "terminated"]


def test_an_overdue_pod_fails_however_its_containers_end() -> None:
    body = pod()
    body["status"] = mirrored(body, told(RUNNING, message="runs"), at(T0), overdue=True)
    assert (body["status"]["phase"], body["status"]["reason"]) == ("Running", "DeadlineExceeded")
    # A provider that was started anew knows it from the pod.
    done = mirrored(body, told(ended(), phase="Succeeded"), at(T1))
    assert (done["phase"], done["reason"]) == ("Failed", "DeadlineExceeded")
    assert done["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_a_deadline_is_kept_here_only_if_the_job_does_not() -> None:
    body = pod()
    began = datetime.fromisoformat(T0).timestamp()
    entry = told(RUNNING, startTime=T0)
    assert seconds_left(body, entry, began) is None
    body["spec"]["activeDeadlineSeconds"] = 30
    assert seconds_left(body, entry, began + 10) == 20
    assert seconds_left(body, {**entry, "activeDeadlineSeconds": 60}, began + 31) == -1
    assert seconds_left(body, {**entry, "activeDeadlineSeconds": 30}, began + 99) is None
    assert seconds_left(body, told(WAITING, startTime=""), began + 99) is None, "it waits in the queue"
    # A plugin that does not tell the job's start.
    body["status"] = {"phase": "Running", "startTime": T0}
    assert seconds_left(body, told(RUNNING), began + 10) == 20


def test_held_back_names_the_containers_concerned() -> None:
    new = held_back(pod(2), at(T0), "CreateContainerConfigError", "why", frozenset({"b"}))
    reasons = [each["state"]["waiting"]["reason"] for each in new["containerStatuses"]]
    assert reasons == ["ContainerCreating", "CreateContainerConfigError"]


def test_has_ended() -> None:
    assert has_ended(None)
    assert has_ended(told(ended(), ended(1)))
    assert not has_ended(told(ended(), RUNNING))
    assert not has_ended(told(ended(), phase="Running")), "the sidecar's own word comes first"
    assert not has_ended({"JID": "1", "containers": []})


def test_times() -> None:
    assert time_of("2026-11-30T11:00:00.123+01:00") == T0
    assert time_of("0001-01-01T00:00:00Z") is None
    assert time_of("yesterday") is None
    assert time_of(None) is None


_STATES = st.sampled_from([WAITING, RUNNING, ended(0), ended(1), ended(143), {}, {"odd": 1}, None])
_RAW = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(_STATES, _STATES), min_size=1, max_size=8))
def test_whatever_comes_terminated_and_finished_stay_so(history: list[tuple[Any, Any]]) -> None:
    body = pod(2)
    begun = None
    for number, states in enumerate(history):
        now = f"2026-11-30T10:00:{number:02d}Z"
        new = mirrored(body, told(*[state or {} for state in states]), at(now))
        before = body["status"]
        for old, fresh in zip(before.get("containerStatuses", ()), new["containerStatuses"], strict=False):
            if "terminated" in old["state"]:
                assert fresh["state"]["terminated"]["exitCode"] == old["state"]["terminated"]["exitCode"]
        if before.get("phase") in status.FINISHED:
            assert new == before
        begun = begun or new["startTime"]
        assert new["startTime"] == begun
        if new["phase"] == "Succeeded":
            codes = [each["state"]["terminated"]["exitCode"] for each in new["containerStatuses"]]
            assert codes == [0, 0]
        for each in new["conditions"]:
            old_one = next((o for o in before.get("conditions", ()) if o["type"] == each["type"]), None)
            if old_one and before.get("phase") not in status.FINISHED:
                moved = each["lastTransitionTime"] != old_one["lastTransitionTime"]
                assert moved == (each["status"] != old_one["status"])
        body = applied(body, changes(before, new))
        assert changes(body["status"], mirrored(body, told(*[s or {} for s in states]), at(now))) == {}


@given(_RAW)
def test_a_state_of_any_shape_breaks_nothing(raw: Any) -> None:
    entry = {"JID": "1", "containers": [{"name": "a", "state": raw, "lastState": raw, "restartCount": raw}]}
    assert mirrored(pod(), entry, at(T0))["phase"] in status.PHASES

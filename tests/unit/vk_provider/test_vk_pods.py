"""Pods from the API server to the sidecar and back, with everything that may come between."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from tests.unit.vk_provider.conftest import World, pod, until

PATH = "/api/v1/namespaces/ns"


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in found["status"]["conditions"]}


def waiting(world: World) -> dict[str, Any]:
    found = world.api.pod("p") or {}
    statuses = found.get("status", {}).get("containerStatuses") or [{}]
    return dict((statuses[0].get("state") or {}).get("waiting") or {})


def test_a_pod_runs_and_succeeds(world: World) -> None:
    world.start()
    world.api.add_pod(pod(initContainers=[{"name": "i", "image": "busybox"}]))
    job = world.job()
    found = until(lambda: (p := world.api.pod("p")) and p["status"].get("containerStatuses") and p)
    assert found["status"]["phase"] == "Pending"
    assert found["metadata"]["annotations"]["JobID"] == str(job.number)
    assert waiting(world)["reason"] == "PodInitializing"
    world.sidecar.start(job)
    until(lambda: world.phase() == "Running")
    running = world.api.pod("p")
    assert running is not None
    assert conditions(running) == dict.fromkeys(
        ("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
    )
    assert running["status"]["podIP"] == running["status"]["hostIP"] == "127.0.0.1"
    assert running["status"]["qosClass"] == "BestEffort"
    world.sidecar.end(job)
    until(lambda: world.phase() == "Succeeded")
    ended = world.api.pod("p")
    assert ended is not None
    assert conditions(ended)["Ready"] == "False"
    assert ended["status"]["startTime"] == running["status"]["startTime"]
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert len(world.sidecar.created) == 1
    assert len(world.api.events("SlurmJobPending")) == 1


def test_a_failing_pod_keeps_its_exit_code_and_reason(world: World) -> None:
    world.start()
    job = world.run()
    job.pod_reason = "DeadlineExceeded"
    world.sidecar.end(job, 137, "Error", "Slurm job reached its time limit")
    until(lambda: world.phase() == "Failed")
    status = (world.api.pod("p") or {})["status"]
    assert status["reason"] == "DeadlineExceeded"
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (137, "Slurm job reached its time limit")


def test_one_event_says_why_a_pod_waits_however_often_it_is_asked(world: World) -> None:
    world.start()
    world.api.add_pod(pod())
    job = world.job()
    until(lambda: len(world.sidecar.polls) > 5)
    with world.sidecar.changed:
        job.states["c"] = {"waiting": {"reason": "ContainerCreating", "message": "queued: Priority"}}
    until(lambda: [e["message"] for e in world.api.events("SlurmJobPending")] == ["queued: Priority"])
    patches = len(world.api.calls("PATCH", "/pods/p/status"))
    seen = len(world.sidecar.polls)
    until(lambda: len(world.sidecar.polls) > seen + 5)
    assert len(world.api.calls("PATCH", "/pods/p/status")) == patches, "nothing new, nothing written"


def test_a_missing_configmap_holds_the_pod_back_until_it_is_made(world: World) -> None:
    world.start()
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}
    world.api.add_pod(pod(containers=[{"name": "c", "image": "i", "env": [variable]}]))
    until(lambda: waiting(world).get("reason") == "CreateContainerConfigError")
    assert waiting(world)["message"] == 'configmap "late" not found'
    assert world.phase() == "Pending"
    assert until(lambda: world.api.events("Failed"))[0]["message"] == 'Error: configmap "late" not found'
    assert not world.sidecar.created
    world.api.put(f"{PATH}/configmaps/late", {"data": {"a": "$(x) $$"}})
    world.job()
    env = world.sidecar.created[0]["pod"]["spec"]["containers"][0]["env"]
    # Doubled, so that the sidecar's expansion gives the value back.
    assert {"name": "A", "value": "$$(x) $$$$"} in env
    assert {"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"} in env


def test_a_missing_volume_is_a_failed_mount(world: World) -> None:
    world.start()
    mounts = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "secret": {"secretName": "late"}}]
    world.api.add_pod(pod(containers=[{"name": "c", "image": "i", "volumeMounts": mounts}], volumes=volumes))
    event = until(lambda: world.api.events("FailedMount"))[0]
    assert event["message"] == 'MountVolume.SetUp failed for volume "v" : secret "late" not found'
    until(lambda: waiting(world).get("reason") == "ContainerCreating")
    world.api.put(f"{PATH}/secrets/late", {"data": {"k": base64.b64encode(b"\xff").decode()}})
    world.job()
    sent = world.sidecar.created[0]["container"][0]["secrets"]
    assert [(s["metadata"]["name"], s["data"]["k"]) for s in sent] == [("late", "/w==")]


def test_a_refused_pod_fails_with_the_sidecars_words(world: World) -> None:
    world.start()
    world.sidecar.refuse = "spec.hostIPC: containers do not share the node's IPC namespace"
    world.api.add_pod(pod())
    until(lambda: world.phase() == "Failed")
    status = (world.api.pod("p") or {})["status"]
    assert status["reason"] == "ProviderFailed"
    assert status["message"] == world.sidecar.refuse
    assert until(lambda: world.api.events("ProviderCreateFailed"))
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)


def test_what_cannot_be_resolved_here_is_refused_without_asking_the_sidecar(world: World) -> None:
    world.start()
    source = {"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}
    mounts = [{"name": "v", "mountPath": "/v"}]
    container = {"name": "c", "image": "i", "volumeMounts": mounts}
    world.api.add_pod(pod(containers=[container], volumes=[{"name": "v", **source}]))
    until(lambda: world.phase() == "Failed")
    assert "clusterTrustBundle" in (world.api.pod("p") or {})["status"]["message"]
    assert not world.sidecar.created


def test_a_sidecar_that_is_away_leaves_the_pod_pending(world: World) -> None:
    world.start()
    world.sidecar.down = True
    world.api.add_pod(pod())
    until(lambda: world.api.events("SidecarUnreachable"))
    assert world.phase() == "Pending"
    world.sidecar.down, world.sidecar.not_now = False, "slurmctld cannot be asked"
    until(lambda: len(world.sidecar.created) > 1)
    assert world.phase() == "Pending"
    world.sidecar.not_now = None
    world.job()
    assert len(world.sidecar.jobs) == 1


def test_a_lost_answer_to_create_makes_no_second_job(world: World) -> None:
    world.start()
    world.sidecar.on_create = lambda job: setattr(world.sidecar, "plain", True)
    world.api.add_pod(pod())
    world.job()
    # The annotation cannot be written: the next step must not create again.
    world.api.fail("PATCH", "/pods/q/status", 500, times=3)
    world.api.add_pod(pod("q"))
    job = world.job("q")
    world.sidecar.start(job)
    until(lambda: world.phase("q") == "Running")
    assert len([c for c in world.sidecar.created if c["pod"]["metadata"]["name"] == "q"]) == 1


def test_delete_of_a_running_pod_waits_for_the_jobs_end(world: World) -> None:
    world.start()
    world.sidecar.hold = True
    job = world.run(terminationGracePeriodSeconds=7)
    world.api.delete_pod("p")
    until(lambda: job.deleting)
    assert world.sidecar.deleted[0]["metadata"]["deletionGracePeriodSeconds"] == 7
    seen = len(world.sidecar.polls)
    until(lambda: len(world.sidecar.polls) > seen + 5)
    assert world.api.pod("p") is not None, "the job still runs"
    world.sidecar.end(job, 143)
    until(lambda: world.api.pod("p") is None)
    options = world.api.calls("DELETE", "/pods/p$")[-1]
    assert (options["gracePeriodSeconds"], options["preconditions"]) == (0, {"uid": job.uid})
    last = [b["status"] for b in world.api.calls("PATCH", "/pods/p/status") if "status" in b][-1]
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_delete_while_it_waits_in_the_queue(world: World) -> None:
    world.start()
    world.api.add_pod(pod())
    job = world.job()
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)
    assert job.deleting


def test_delete_before_it_could_be_submitted(world: World) -> None:
    world.start()
    variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "never", "key": "a"}}}
    world.api.add_pod(pod(containers=[{"name": "c", "image": "i", "env": [variable]}]))
    until(lambda: waiting(world))
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)
    assert not world.sidecar.created


def test_delete_of_a_finished_pod_needs_no_sidecar(world: World) -> None:
    world.start()
    job = world.run()
    world.sidecar.end(job)
    until(lambda: world.phase() == "Succeeded")
    world.sidecar.down = True
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)


def test_a_pod_deleted_while_the_sidecar_is_away_stays_until_it_is_back(world: World) -> None:
    world.start()
    job = world.run()
    world.sidecar.down = True
    world.api.delete_pod("p")
    until(lambda: (world.api.pod("p") or {})["metadata"].get("deletionTimestamp"))
    time.sleep(0.3)
    assert world.api.pod("p") is not None
    world.sidecar.down = False
    until(lambda: world.api.pod("p") is None)
    assert job.deleting


def test_a_deadline_set_on_a_running_pod_ends_it(world: World) -> None:
    world.start()
    world.sidecar.hold = True
    job = world.run()
    found = world.api.pod("p") or {}
    world.api.put(f"{PATH}/pods/p", {**found, "spec": {**found["spec"], "activeDeadlineSeconds": 1}})
    until(lambda: job.deleting)
    assert not found["metadata"].get("deletionTimestamp")
    until(lambda: world.api.events("DeadlineExceeded"))
    assert world.phase() == "Running", "the job still runs"
    world.stop()
    world.sidecar.end(job)
    world.start()
    until(lambda: world.phase() == "Failed")
    status = (world.api.pod("p") or {})["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert len(world.sidecar.deleted) == 1


def test_a_pod_removed_by_force_ends_its_job(world: World) -> None:
    world.start()
    job = world.run()
    world.api.delete_pod("p", grace=0)
    until(lambda: job.deleting)


def test_a_failed_phase_written_by_others_does_not_free_what_runs(world: World) -> None:
    world.start()
    world.sidecar.hold = True
    job = world.run()
    found = world.api.pod("p") or {}
    world.api.put(f"{PATH}/pods/p", {**found, "status": {**found["status"], "phase": "Failed"}})
    world.api.delete_pod("p")
    until(lambda: job.deleting)
    seen = len(world.sidecar.polls)
    until(lambda: len(world.sidecar.polls) > seen + 3)
    assert world.api.pod("p") is not None
    world.sidecar.end(job, 143)
    until(lambda: world.api.pod("p") is None)


def test_the_same_name_again_is_another_pod(world: World) -> None:
    world.start()
    first = world.run()
    world.api.delete_pod("p", grace=0)
    world.api.add_pod(pod())
    until(lambda: len(world.sidecar.jobs) == 2)
    until(lambda: first.deleting)
    second = world.job()
    assert second.uid != first.uid
    assert not second.deleting
    world.sidecar.start(second)
    until(lambda: world.phase() == "Running")


def test_a_restart_creates_nothing_twice_and_sees_what_happened_meanwhile(world: World) -> None:
    world.start()
    job = world.run()
    world.api.add_pod(pod("gone"))
    gone = world.job("gone")
    world.sidecar.start(gone)
    until(lambda: world.phase("gone") == "Running")
    world.stop()
    world.sidecar.end(job, 3)
    world.api.delete_pod("gone")
    world.api.add_pod(pod("new"))
    world.start()
    until(lambda: world.phase() == "Failed")
    until(lambda: world.api.pod("gone") is None)
    world.job("new")
    assert sorted(c["pod"]["metadata"]["name"] for c in world.sidecar.created) == ["gone", "new", "p"]
    assert gone.deleting


def test_a_restart_between_submit_and_annotation_finds_the_job(world: World) -> None:
    """Even if what the pod refers to is gone by then."""
    variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}
    body = pod(containers=[{"name": "c", "image": "i", "env": [variable]}])
    made = world.api.add_pod(body)
    world.sidecar.create({"pod": made, "container": []})
    world.sidecar.start(world.sidecar.job("p"))
    world.start()
    until(lambda: world.phase() == "Running")
    assert len(world.sidecar.created) == 1
    assert (world.api.pod("p") or {})["metadata"]["annotations"]["JobID"]


def test_a_submitted_pod_the_sidecar_has_lost_is_not_submitted_again(world: World) -> None:
    world.start()
    world.run()
    world.sidecar.jobs.clear()
    seen = len(world.sidecar.polls)
    until(lambda: len(world.sidecar.polls) > seen + 5)
    assert world.phase() == "Running", "unknown is not failed"
    assert len(world.sidecar.created) == 1
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)


def test_a_broken_watch_goes_on_where_it_was(world: World) -> None:
    world.start()
    world.run()
    lists = len([1 for m, p, _ in world.api.requests if (m, p) == ("GET", "/api/v1/pods")])
    world.api.bookmark()
    world.api.break_watches()
    world.api.add_pod(pod("q"))
    world.job("q")
    assert lists >= 2


def test_a_version_too_old_lists_again_and_misses_no_deletion(world: World) -> None:
    world.start()
    job = world.run()
    world.api.down = True
    world.api.break_watches()
    time.sleep(0.2)
    world.api.delete_pod("p", grace=0)
    world.api.add_pod(pod("q"))
    world.api.forget_history()
    world.api.down = False
    until(lambda: job.deleting)
    world.job("q")


def test_an_api_server_that_fails_now_and_then(world: World) -> None:
    world.api.fail("GET", "/api/v1/pods", 503, times=1)
    world.api.fail("PATCH", "/pods/p/status", 500, times=3)
    world.api.fail("GET", "/services", 429, times=2)
    world.api.fail("POST", "/events", 403, times=2)
    world.start()
    job = world.run()
    world.sidecar.end(job)
    until(lambda: world.phase() == "Succeeded")
    world.api.fail("DELETE", "/pods/p", 500, times=2)
    world.api.delete_pod("p")
    until(lambda: world.api.pod("p") is None)


def test_many_pods_are_asked_about_in_one_question(world: World) -> None:
    for number in range(40):
        world.api.add_pod(pod(f"p{number}"))
    world.start()
    until(lambda: len(world.sidecar.jobs) == 40)
    until(lambda: 40 in world.sidecar.polls[-5:])
    assert len(world.sidecar.created) == 40
    for job in list(world.sidecar.jobs.values()):
        world.sidecar.end(job)
    until(lambda: all(world.phase(f"p{number}") == "Succeeded" for number in range(40)))
    seen = len(world.sidecar.polls)
    time.sleep(0.3)
    assert len(world.sidecar.polls) <= seen + 1, "nobody asks about finished pods"


def test_one_pods_odd_status_is_its_own_affair(world: World) -> None:
    real = world.sidecar._entry

    def odd(pod: dict[str, Any]) -> dict[str, Any]:
        entry = real(pod)
        if pod["metadata"]["name"] == "odd" and entry["JID"]:
            return {**entry, "containers": 5, "initContainers": "x", "conditions": [3]}
        return entry

    world.sidecar._entry = odd  # type: ignore[method-assign]
    world.start()
    world.api.add_pod(pod("odd"))
    world.job("odd")
    job = world.run()
    world.sidecar.end(job)
    until(lambda: world.phase() == "Succeeded")
    assert world.phase("odd") == "Pending"


def test_no_secret_is_ever_logged(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "hunter2-" + "x" * 8
    world.api.put(f"{PATH}/secrets/s", {"data": {"k": base64.b64encode(secret.encode()).decode()}})
    world.sidecar.not_now = "later"
    world.start()
    variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    world.api.add_pod(pod(containers=[{"name": "c", "image": "i", "env": [variable]}]))
    until(lambda: len(world.sidecar.created) > 1)
    world.sidecar.not_now = None
    world.sidecar.end(world.job(), 1)
    until(lambda: world.phase() == "Failed")
    world.stop()
    printed = "".join(capfd.readouterr())
    assert "pod submitted" in printed
    assert secret not in printed
    assert base64.b64encode(secret.encode()).decode() not in printed

"""Sidecars: init containers that are restarted always (N25 to N31).

The lab's API server stores their restart policy (docs/lab.md), so they come the whole way. As
upstream, under several restart policies of the pod: a sidecar has its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fidelity.specs import (
    Images,
    Pod,
    condition,
    container,
    phase,
    pod,
    restarts,
    running,
    status_of,
    terminated,
    waiting,
)
from tests.fidelity.ways import Cluster

MOUNT = {"name": "log", "mountPath": "/log"}
LOG = {"name": "log", "emptyDir": {"medium": "Memory"}}
# Writes that it started, and on TERM that it ends, as which it ends well.
STAYS = (
    "trap 'echo {0} ends >>/log/story; exit 0' TERM; echo {0} starts >>/log/story; touch /log/{0}; "
    "while :; do sleep 0.05; done"
)
UNTIL = "until {}; do sleep 0.05; done; "


def writes(images: Images, script: str, name: str = "main", **fields: Any) -> Pod:
    """A container that sees /log."""
    return container(images.shell, script, name=name, volumeMounts=[MOUNT], **fields)


def sidecar(images: Images, script: str, name: str = "side", **fields: Any) -> Pod:
    return writes(images, script, name, restartPolicy="Always", **fields)


def with_inits(*inits: Pod, main: Pod, **spec: Any) -> Pod:
    return pod(main, initContainers=list(inits), volumes=[LOG], **spec)


def initialized_without(found: Pod, *names: str) -> bool:
    told = next(one for one in found["status"]["conditions"] if one["type"] == "Initialized")
    words = f"containers with incomplete status: [{' '.join(names)}]"
    return (told["status"], told.get("message")) == ("False", words)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_N25(cluster: Cluster, images: Images, policy: str) -> None:
    main = writes(images, "echo main starts >>/log/story; sleep 1; cat /log/story; test -e /log/side")
    side = sidecar(images, "echo from the sidecar; " + STAYS.format("side"))
    # Started is not yet having written; so it is waited for, which shows that it runs beside it, too.
    init = writes(images, UNTIL.format("test -e /log/side"), "init")
    made = cluster.create(with_inits(side, init, main=main, restartPolicy=policy))
    both = cluster.until(made, lambda found: running(found, "main"))
    assert running(both, "side")
    assert (status_of(both, "side")["ready"], status_of(both, "side")["started"]) == (True, True)
    assert (condition(both, "Initialized"), condition(both, "Ready")) == ("True", "True")
    done = cluster.finished(made)
    assert cluster.log(made, "main") == "side starts\nmain starts\n"
    assert cluster.log(made, "side") == "from the sidecar\n"
    assert (restarts(done, "side"), terminated(done, "side")["reason"]) == (0, "Completed")


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
@pytest.mark.parametrize(("row", "code"), [("N26", 0), ("N27", 1)])
def test_a_sidecar_that_keeps_ending(
    cluster: Cluster, images: Images, row: str, code: int, policy: str
) -> None:
    side = sidecar(images, f"echo side >>/log/story; exit {code}")
    # The init container after it sees it restarted, and so does the app, which succeeds all the same.
    init = writes(
        images, UNTIL.format("[ $(grep -c side /log/story) -ge 2 ]") + "echo init >>/log/story", "init"
    )
    again = UNTIL.format('[ "$(tail -n 1 /log/story)" = side ]')
    main = writes(images, "echo main >>/log/story; " + again + "cat /log/story")
    made = cluster.create(with_inits(side, init, main=main, restartPolicy=policy))
    done = cluster.finished(made)
    story = cluster.log(made, "main").split()
    assert [word for word in story if word != "side"] == ["init", "main"]
    assert story[:2] == ["side", "side"]
    assert story[-1] == "side"
    assert restarts(done, "side") >= story.count("side") - 1 >= 2
    assert terminated(done, "main")["exitCode"] == 0
    assert terminated(done, "side")["exitCode"] == code
    assert status_of(done, "side")["lastState"]["terminated"]["exitCode"] == code


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_N28(cluster: Cluster, images: Images, policy: str) -> None:
    bad = {**sidecar(images, "true"), "image": images.missing}
    made = cluster.create(with_inits(bad, main=writes(images, "true"), restartPolicy=policy))

    def backs_off(found: Pod) -> bool:
        if waiting(found, "main"):
            assert (phase(found), waiting(found, "main")["reason"]) == ("Pending", "PodInitializing")
        return waiting(found, "side").get("reason") == "ImagePullBackOff"

    assert restarts(cluster.until(made, backs_off), "side") == 0


def test_N29_once(cluster: Cluster, images: Images) -> None:
    bad, side = writes(images, "exit 3", "init"), sidecar(images, STAYS.format("side"))
    made = cluster.create(with_inits(bad, side, main=writes(images, "true")))
    done = cluster.finished(made, "Failed")
    assert terminated(done, "init")["exitCode"] == 3
    for name in ("side", "main"):
        assert "waiting" in status_of(done, name)["state"], status_of(done, name)
    assert initialized_without(done, "init", "side")


def test_N29(cluster: Cluster, images: Images) -> None:
    bad = writes(images, "exit 1", "init")
    side = sidecar(images, STAYS.format("side"))
    made = cluster.create(with_inits(bad, side, main=writes(images, "true"), restartPolicy="Always"))

    def failing(found: Pod) -> bool:
        if not found["status"].get("initContainerStatuses"):
            return False
        assert phase(found) == "Pending"
        for name in ("side", "main"):
            assert waiting(found, name)["reason"] == "PodInitializing", status_of(found, name)
        return restarts(found, "init") >= 3

    assert initialized_without(cluster.until(made, failing), "init", "side")


def test_N30_once(cluster: Cluster, images: Images) -> None:
    side = sidecar(images, STAYS.format("side"))
    bad = writes(images, UNTIL.format("test -e /log/side") + "cat /log/story; exit 3", "init")
    made = cluster.create(with_inits(side, bad, main=writes(images, "true")))
    done = cluster.finished(made, "Failed")
    assert cluster.log(made, "init") == "side starts\n"
    assert (terminated(done, "init")["exitCode"], terminated(done, "side")["exitCode"]) == (3, 0)
    assert waiting(done, "main")["reason"] == "PodInitializing", status_of(done, "main")


def test_N30(cluster: Cluster, images: Images) -> None:
    side = sidecar(images, STAYS.format("side"))
    bad = writes(images, UNTIL.format("test -e /log/side") + "exit 1", "init")
    made = cluster.create(with_inits(side, bad, main=writes(images, "true"), restartPolicy="Always"))

    def failing(found: Pod) -> bool:
        if not found["status"].get("initContainerStatuses"):
            return False
        assert phase(found) == "Pending"
        assert waiting(found, "main")["reason"] == "PodInitializing", status_of(found, "main")
        return restarts(found, "init") >= 3

    found = cluster.until(made, failing)
    assert running(found, "side")
    assert restarts(found, "side") == 0
    assert initialized_without(found, "init")


def test_N31(cluster: Cluster, images: Images) -> None:
    names = ("one", "two", "three")
    # The first one waits for its turn to end, then tells what it has seen.
    ends = STAYS.replace("exit 0", "[ {0} != one ] || cat /log/story; exit 0")
    sidecars = [sidecar(images, ends.format(name), name) for name in names]
    ready = UNTIL.format(" && ".join(f"test -e /log/{name}" for name in names))
    main = writes(images, ready + "echo main ends >>/log/story")
    done = cluster.finished(cluster.create(made := with_inits(*sidecars, main=main)))
    story = cluster.log(made, "one").splitlines()
    assert sorted(story[:3]) == sorted(f"{name} starts" for name in names)
    assert story[3:] == ["main ends", "three ends", "two ends", "one ends"]
    for name in names:
        end = terminated(done, name)
        assert (end["exitCode"], end["reason"]) == (0, "Completed")

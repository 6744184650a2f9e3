"""The life of containers: ends, restarts, init containers (R001 to R003, R050 to R053), R145 and R151."""

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
    unique,
    waiting,
)
from tests.fidelity.ways import Cluster

MEMORY = {"name": "kept", "emptyDir": {"medium": "Memory"}}
MOUNT = {"name": "kept", "mountPath": "/kept"}
# Fails the first time, succeeds the second, then stays: upstream's script.
THREE_LIVES = """
f=/kept/runs
count=$(echo hello >>$f; wc -l <$f)
if [ $count -eq 1 ]; then exit 1; fi
if [ $count -eq 2 ]; then exit 0; fi
while true; do sleep 1; done
"""


def initialized(found: Pod) -> dict[str, Any]:
    """The condition, with its words."""
    return next(dict(one) for one in found["status"]["conditions"] if one["type"] == "Initialized")


def test_R001(cluster: Cluster, images: Images) -> None:
    once = cluster.create(pod(container(images.shell, None, command=["/bin/false"])))
    again = cluster.create(pod(container(images.shell, None, command=["/bin/false"]), restartPolicy="Always"))
    done = terminated(cluster.finished(once, "Failed"))
    assert (done["exitCode"], done["reason"]) == (1, "Error")
    # Where it is tried again, it is seen to wait and why: its last end has the same code and reason.
    seen = cluster.until(again, lambda found: waiting(found).get("reason") == "CrashLoopBackOff")
    last = status_of(seen)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"], phase(seen)) == (1, "Error", "Running")


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_R002(cluster: Cluster, images: Images, policy: str) -> None:
    made = cluster.create(pod(container(images.shell, None, command=["/bin/false"]), restartPolicy=policy))
    if policy == "Never":
        cluster.finished(made, "Failed")
    else:
        cluster.until(made, lambda found: restarts(found) > 0)
    cluster.delete(made)
    assert cluster.get(made) is None


@pytest.mark.parametrize(
    ("policy", "ends_as", "state", "count", "ready"),
    [
        ("Always", "Running", "running", 2, True),
        ("OnFailure", "Succeeded", "terminated", 1, False),
        ("Never", "Failed", "terminated", 0, False),
    ],
)
def test_R003(
    cluster: Cluster, images: Images, policy: str, ends_as: str, state: str, count: int, ready: bool
) -> None:
    made = cluster.create(
        pod(
            container(images.shell, THREE_LIVES, volumeMounts=[MOUNT]),
            restartPolicy=policy,
            volumes=[MEMORY],
        )
    )

    def as_expected(found: Pod) -> bool:
        status = status_of(found)
        return (
            phase(found) == ends_as
            and restarts(found) == count
            and list(status["state"]) == [state]
            and status["ready"] is ready
        )

    found = cluster.until(made, as_expected)
    assert condition(found, "Ready") == str(ready)
    if policy == "Always":
        assert status_of(found)["lastState"]["terminated"]["exitCode"] == 0
    cluster.delete(made)


def test_R050(cluster: Cluster, images: Images) -> None:
    order = [
        container(images.shell, f"echo {name} >>/kept/order", name=name, volumeMounts=[MOUNT])
        for name in ("init1", "init2")
    ]
    main = container(images.shell, "cat /kept/order", name="run1", volumeMounts=[MOUNT])
    made = cluster.create(pod(main, initContainers=order, volumes=[MEMORY]))
    done = cluster.finished(made)
    assert condition(done, "Initialized") == "True"
    assert len(done["status"]["initContainerStatuses"]) == 2
    for name in ("init1", "init2"):
        assert status_of(done, name)["ready"] is True
        assert terminated(done, name)["exitCode"] == 0
    assert cluster.log(made) == "init1\ninit2\n"


def test_R051(cluster: Cluster, images: Images) -> None:
    inits = [container(images.shell, "true", name=name) for name in ("init1", "init2")]
    made = cluster.create(
        pod(container(images.shell, "sleep 300", name="run1"), initContainers=inits, restartPolicy="Always")
    )
    found = cluster.until(made, lambda found: phase(found) == "Running")
    assert condition(found, "Initialized") == "True"
    for name in ("init1", "init2"):
        assert status_of(found, name)["ready"] is True
        assert terminated(found, name)["exitCode"] == 0
    assert running(cluster.until(made, lambda found: condition(found, "Ready") == "True"), "run1")


def test_R052(cluster: Cluster, images: Images) -> None:
    inits = [container(images.shell, script, name=f"init{n}") for n, script in ((1, "false"), (2, "true"))]
    made = cluster.create(
        pod(container(images.shell, "sleep 300", name="run1"), initContainers=inits, restartPolicy="Always")
    )

    def failing(found: Pod) -> bool:
        """Three restarts; in every look until then nothing behind the first init container has begun."""
        if not found["status"].get("initContainerStatuses"):
            return False
        assert phase(found) == "Pending"
        for name in ("init2", "run1"):
            assert waiting(found, name)["reason"] == "PodInitializing", status_of(found, name)
        first = status_of(found, "init1")
        assert terminated(found, "init1").get("exitCode") != 0
        return restarts(found, "init1") >= 3 and bool(first["lastState"].get("terminated"))

    found = cluster.until(made, failing)
    assert status_of(found, "init1")["lastState"]["terminated"]["exitCode"] == 1
    assert len(found["status"]["initContainerStatuses"]) == 2
    told = initialized(found)
    assert (told["status"], told["reason"]) == ("False", "ContainersNotInitialized")
    assert told["message"] == "containers with incomplete status: [init1 init2]"
    seen = cluster.until(made, lambda found: waiting(found, "init1").get("reason") == "CrashLoopBackOff")
    assert phase(seen) == "Pending"


def test_R053(cluster: Cluster, images: Images) -> None:
    inits = [container(images.shell, script, name=f"init{n}") for n, script in ((1, "true"), (2, "exit 3"))]
    made = cluster.create(pod(container(images.shell, "true", name="run1"), initContainers=inits))
    done = cluster.finished(made, "Failed")
    assert (terminated(done, "init1")["exitCode"], terminated(done, "init2")["exitCode"]) == (0, 3)
    assert waiting(done, "run1")["reason"] == "PodInitializing", status_of(done, "run1")
    told = initialized(done)
    assert (told["status"], told["reason"]) == ("False", "ContainersNotInitialized")
    assert told["message"] == "containers with incomplete status: [init2]"


def test_R145(cluster: Cluster, images: Images) -> None:
    words = unique("hello")
    made = pod(container(images.shell, f"echo '{words} out'; echo '{words} err' >&2; echo end"))
    lines = cluster.output(made).splitlines()
    # Two streams have no order between them.
    lines.remove(f"{words} err")
    assert lines == [f"{words} out", "end"]


def test_R151(cluster: Cluster, images: Images) -> None:
    script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    made = cluster.create(pod(container(images.shell, script), restartPolicy="Always"))
    cluster.until(made, running)
    cluster.logged(made, "up\n")
    cluster.patch(made, {"spec": {"activeDeadlineSeconds": 2}})
    done = cluster.finished(made, "Failed")
    assert done["status"]["reason"] == "DeadlineExceeded"
    # Ended in order: asked first, and what it answered is kept.
    assert terminated(done)["exitCode"] == 0
    assert cluster.log(made) == "up\nasked\n"

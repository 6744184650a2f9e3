"""The life of containers in real jobs: restarts, sidecars, last words, orderly ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab, container

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]
BASE = 0.2  # seconds; the kubelet's 10 would make each of these a minute
# Says so on TERM and ends; `up` comes when the trap is set.
TRAP = "trap 'echo {0} >>/log/order; exit {1}' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def quick(cli: Cli) -> Cli:
    """The command line of a site where back-off is short."""
    return cli.configure(podrunner={"backoff_base_s": BASE})


def policy(name: str, **more: Any) -> dict[str, Any]:
    """A pod's spec with a restart policy and a directory in memory that all may mount at /log."""
    return {
        "restartPolicy": name,
        "volumes": [{"name": "log", "emptyDir": {"medium": "Memory"}}],
        **more,
    }


def shell(script: str, lab: Lab | None = None, **fields: Any) -> dict[str, Any]:
    """A container that sees /log; with `lab` complete, for where the fixture makes none."""
    made = {
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "log", "mountPath": "/log"}],
        **fields,
    }
    if lab is not None:
        made["image"] = f"{lab.registry}/lab/busybox:1"
        made["resources"] = {"limits": {"cpu": "100m", "memory": "20Mi"}}
    return made


def sidecar(lab: Lab, name: str, script: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "restartPolicy": "Always", **shell(script, lab, **fields)}


def logs(cli: Cli, document: dict[str, Any], name: str, *options: str) -> list[str]:
    done = cli("logs", document["uid"], "-c", name, *options)
    assert done.code == 0, done.err
    return done.out.splitlines()


def state(document: dict[str, Any], name: str) -> tuple[str, str | None, int]:
    one = container(document, name)
    return one["state"], one["reason"], one["restarts"]


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_a_failure_is_tried_again_until_it_succeeds(cli: Cli, pod: Pods, lab: Lab, mode: str) -> None:
    cli = cli.configure(podrunner={"backoff_base_s": BASE, "mode": mode})
    script = (
        "echo run >>/log/runs; n=$(wc -l </log/runs); echo run $n; [ $n = 3 ] || { echo bad $n; exit $n; }"
    )
    done = cli.run(pod(main=shell(script), other="true", spec=policy("OnFailure")))
    assert done.code == 0, done.err
    document = done.json()
    assert document["phase"] == "Succeeded"
    main = container(document, "main")
    assert (main["exitCode"], main["reason"], main["restarts"]) == (0, "Completed", 2)
    assert (main["lastState"]["exitCode"], main["lastState"]["reason"]) == (2, "Error")
    assert container(document, "other")["restarts"] == 0
    assert logs(cli, document, "main") == ["run 3"]
    # The log of the run before is kept, that of the first is gone.
    assert logs(cli, document, "main", "--previous") == ["run 2", "bad 2"]
    kept = _directory(lab, document["uid"]) / "logs" / "main"
    assert sorted(path.name for path in kept.iterdir()) == ["1.log", "2.log"]


def _directory(lab: Lab, uid: str) -> Path:
    """The pod's directory; the newest ones are looked at first."""
    pods = Path(lab.env["LAB_SHARED"]) / "pods"
    for path in sorted(pods.glob("*/status.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        if json.loads(path.read_text())["uid"] == uid:
            return path.parent
    raise AssertionError(f"no directory of pod {uid}")


def test_crash_loop_is_seen_and_deleted_while_it_waits(cli: Cli, pod: Pods) -> None:
    cli = cli.configure(podrunner={"backoff_base_s": 100})
    made = cli.detach(pod(main="echo once more; exit 3", spec=policy("Always")))
    seen = cli.until(made["uid"], lambda d: state(d, "main") == ("waiting", "CrashLoopBackOff", 1))
    assert seen["phase"] == "Running"
    main = container(seen, "main")
    assert (main["lastState"]["exitCode"], main["lastState"]["reason"]) == (3, "Error")
    assert "100 s" in main["message"]
    assert logs(cli, made, "main") == ["once more"]
    done = cli("delete", made["uid"], "--output", "json")
    assert done.code == 0, done.err
    ended = cli.status(made["uid"])
    assert state(ended, "main") == ("terminated", "Error", 1)
    assert (container(ended, "main")["exitCode"], container(ended, "main")["lastState"]["exitCode"]) == (3, 3)
    # It ended by itself, before anything was cancelled.
    assert ended["job"]["state"] == ["FAILED"], ended["job"]


def test_always_runs_again_after_a_success(quick: Cli, pod: Pods) -> None:
    made = quick.detach(pod(main="exit 0", spec=policy("Always")))
    seen = quick.until(made["uid"], lambda d: container(d, "main")["restarts"] >= 2)
    assert container(seen, "main")["lastState"]["exitCode"] == 0
    quick("delete", made["uid"])


def test_sidecars_start_first_run_on_and_stop_last_in_reverse(quick: Cli, pod: Pods, lab: Lab) -> None:
    stops = "test -e /log/one.up && test -e /log/two.up && echo app >>/log/order"
    up = "touch /log/{0}.up; "
    made = pod(
        app=shell(stops + "; sleep 0.3; test -e /log/crash.twice"),
        spec=policy(
            "Never",
            initContainers=[
                sidecar(
                    lab,
                    "one",
                    up.format("one") + TRAP.format("one", 0).replace("exit 0", "cat /log/order; exit 0"),
                ),
                {
                    "name": "plain",
                    **shell("until test -e /log/one.up; do sleep 0.05; done; echo init >>/log/order", lab),
                },
                sidecar(lab, "two", up.format("two") + TRAP.format("two", 5)),
                sidecar(
                    lab,
                    "crash",
                    "test -e /log/crash && touch /log/crash.twice; touch /log/crash; sleep 0.1; exit 9",
                ),
                {
                    "name": "last",
                    **shell("until test -e /log/two.up -a -e /log/crash.twice; do sleep 0.05; done", lab),
                },
            ],
        ),
    )
    done = quick.run(made)
    document = done.json()
    assert (done.code, document["phase"]) == (0, "Succeeded"), document
    assert logs(quick, document, "one") == ["up", "init", "app", "two", "one"]
    assert (container(document, "two")["state"], container(document, "two")["exitCode"]) == ("terminated", 5)
    assert container(document, "crash")["restarts"] >= 1
    assert container(document, "app")["exitCode"] == 0


def test_a_failing_init_container_is_tried_again(quick: Cli, pod: Pods, lab: Lab) -> None:
    script = "echo run >>/log/runs; [ $(wc -l </log/runs) = 3 ]"
    done = quick.run(
        pod(
            main=shell("cat /log/runs"),
            spec=policy("OnFailure", initContainers=[{"name": "init", **shell(script, lab)}]),
        )
    )
    document = done.json()
    assert (done.code, document["phase"]) == (0, "Succeeded"), document
    assert state(document, "init") == ("terminated", "Completed", 2)
    assert logs(quick, document, "main") == ["run"] * 3


def test_delete_while_the_init_container_runs(quick: Cli, pod: Pods, lab: Lab) -> None:
    init = shell("trap 'echo term; exit 4' TERM; echo up; while :; do sleep 0.05; done", lab)
    made = quick.detach(
        pod(
            main="true",
            spec=policy(
                "Always",
                initContainers=[sidecar(lab, "side", TRAP.format("side", 0)), {"name": "init", **init}],
            ),
        )
    )
    seen = quick.until(
        made["uid"], lambda d: state(d, "init")[0] == "running" and logs(quick, d, "init") == ["up"]
    )
    assert (seen["phase"], state(seen, "main")[0]) == ("Pending", "waiting")
    assert quick("delete", made["uid"]).code == 0
    ended = quick.status(made["uid"])
    assert (container(ended, "init")["exitCode"], container(ended, "side")["exitCode"]) == (4, 0)
    assert state(ended, "main")[0] == "waiting"
    assert logs(quick, made, "init") == ["up", "term"]


def test_a_pod_that_only_holds_gpus_is_ended(cli: Cli, pod: Pods) -> None:
    cli = cli.configure(podrunner={"backoff_base_s": 50}, gpu={"max_idle": "1s"})
    done = cli.run(pod(main="exit 3", gpus=1, spec=policy("OnFailure")))
    document = done.json()
    assert (done.code, document["phase"], document["reason"]) == (3, "Failed", "GPUsIdle"), document
    assert "1 GPUs" in document["message"]
    assert state(document, "main") == ("terminated", "Error", 1)


LAST_WORDS: dict[str, tuple[dict[str, Any], int, str | None]] = {
    "written": ({"command": ["sh", "-c", "printf 'two\\nlines' >/dev/termination-log"]}, 0, "two\nlines"),
    "elsewhere": (
        {
            "command": ["sh", "-c", "echo here; printf DONE >/no/such/place; exit 1"],
            "terminationMessagePath": "/no/such/place",
            "terminationMessagePolicy": "FallbackToLogsOnError",
        },
        1,
        "DONE",
    ),
    "volume": (
        {**shell("printf v >/log/words"), "terminationMessagePath": "/log/words"}, 0, "v",
    ),
    "fallback": (
        {
            "command": ["sh", "-c", "seq 1 200; echo end >&2; exit 2"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        },
        2,
        "".join(f"{n}\n" for n in range(122, 201)) + "end\n",
    ),
    "well": (
        {"command": ["sh", "-c", "echo out"], "terminationMessagePolicy": "FallbackToLogsOnError"}, 0, None,
    ),
    "file-only": ({"command": ["sh", "-c", "echo out; exit 1"]}, 1, None),
    "long": ({"command": ["sh", "-c", "seq -w 1 2000 >/dev/termination-log"]}, 0, None),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_last_words(cli: Cli, pod: Pods, mode: str) -> None:
    cli = cli.configure(podrunner={"mode": mode})
    given = {
        name: {**fields, "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}}}
        for name, (fields, _, _) in LAST_WORDS.items()
    }
    document = cli.run(pod(spec=policy("Never"), **given)).json()
    for name, (_, code, words) in LAST_WORDS.items():
        one = container(document, name)
        if name == "long":
            words = "".join(f"{n:04}\n" for n in range(1, 2001))[-4096:]
        if mode == "plain" and name in ("written", "long"):
            words = None  # Apptainer's own /dev takes no file of ours
        assert (name, one["exitCode"], one["message"]) == (name, code, words), one


def test_an_image_that_cannot_be_had_is_tried_again_or_ends_run(quick: Cli, pod: Pods, lab: Lab) -> None:
    bad = {"command": ["true"], "image": f"{lab.registry}/lab/none-such:1"}
    done = quick.run(pod(main=bad, spec=policy("Always")))
    document = done.json()
    assert (done.code, document["phase"], state(document, "main")[1]) == (125, "Failed", "ErrImagePull"), (
        document
    )


def test_kill_9_of_the_runner_leaves_nothing(quick: Cli, pod: Pods, lab: Lab) -> None:
    made = quick.detach(
        pod(
            main=shell("echo up; sleep 987654"),
            spec=policy("Always", initContainers=[sidecar(lab, "side", "sleep 987654")]),
        )
    )
    quick.until(made["uid"], lambda d: state(d, "main")[0] == "running" and logs(quick, d, "main") == ["up"])
    job = quick.status(made["uid"])["job"]["id"]
    lab.exec("scancel", "--batch", "--signal=KILL", str(job))
    ended = quick.until(made["uid"], lambda d: d["phase"] == "Failed")
    assert (container(ended, "main")["exitCode"], container(ended, "main")["reason"]) == (
        137,
        "ContainerStatusUnknown",
    )
    assert "987654" not in lab.exec("ps", "axww", "-o", "args")


@pytest.mark.parametrize(("mode", "files"), [("sandbox", 3), ("sandbox", 30), ("plain", 3)])
def test_a_log_is_rotated_and_followed_meanwhile(
    cli: Cli, pod: Pods, lab: Lab, mode: str, files: int
) -> None:
    cli = cli.configure(podrunner={"mode": mode, "log_max_size": "64Ki", "log_max_files": files})
    # 600 kB, a little at a time, so that somebody can come after.
    write = "i=0; while [ $i -lt 600 ]; do printf '%0999d\n' $i; i=$((i+1)); "
    write += "[ $((i % 30)) != 0 ] || sleep 0.1; done"
    lines = [f"{number:0999d}" for number in range(600)]
    made = cli.detach(pod(main=write))
    followed = [int(line) for line in logs(cli, made, "main", "--follow")]
    # Who comes late to a log of few files misses what is gone, and nothing else.
    assert followed[-1] == 599
    assert followed == sorted(set(followed))
    assert logs(cli, made, "main", "--tail", "100") == lines[-100:]
    kept = logs(cli, made, "main")
    assert kept == lines[-len(kept) :]
    directory = _directory(lab, made["uid"]) / "logs" / "main"
    sizes = {path.name: path.stat().st_size for path in directory.iterdir()}
    assert max(sizes.values()) <= 64 * 1024
    if files == 3:
        assert len(sizes) == 3
        assert 100 < len(kept) < 200
    else:
        assert 9 < len(sizes) < files
        assert kept == lines
        assert followed == list(range(600))

"""What real slurmd and slurmstepd tell of real jobs, on both releases."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest

from tests.labs import SHELL, Cli, Lab
from tests.slurm.spank.conftest import BATCH, Event, Site, words

pytestmark = pytest.mark.slurm


def sound(events: list[Event], **expected: object) -> None:
    """What holds for any story: it is ours, and nothing is missing in a stream."""
    streams: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        streams.setdefault((event["node"], event["stream"]), []).append(event)
        assert (event["v"], event["cluster"], event["uid"]) == (1, "lab", 2001)
        assert {key: event.get(key) for key in expected} == expected
        assert len(event["stream"]) == 16
        assert event["spent_us"] > 0
    for stream in streams.values():
        assert [event["seq"] for event in stream] == list(range(1, len(stream) + 1))


def one(events: list[Event], name: str, **wanted: object) -> Event:
    """The one event of that name."""
    [found] = [e for e in events if e["event"] == name and wanted.items() <= e.items()]
    return found


def test_a_job_of_a_pod(site: Site) -> None:
    pod = str(uuid.uuid4())
    job = site.submit(
        "env; sleep 0.3", {"pod-uid": pod, "pod-events": "all"}, partition="gpu", tres_per_node="gres/gpu:2"
    )
    events = site.story(job)
    assert words(events) == BATCH
    sound(events, pod=pod, job=job)
    printed = site.output(job)
    devices = [int(one) for one in printed.split("CUDA_VISIBLE_DEVICES=")[1].split()[0].split(",")]
    assert len(devices) == 2
    assert all(event["gpus"] == devices for event in events)
    assert "SPANK" not in printed
    end = one(events, "task_exit")
    assert (end["task"], end["status"], end["exit_code"]) == (0, 0, 0)
    used = one(events, "step_end")
    assert 0 < used["cpu_s"] < 10
    assert 100_000 < used["peak_bytes"] < 1_000_000_000


def test_a_pod_through_the_command_line(site: Site, tmp_path: Path) -> None:
    cli = Cli(Lab(dict(site.env)), tmp_path).configure(
        spank={"enabled": True, "events": site.url, "key_file": str(site.key_file)}
    )
    limits = {"cpu": "1", "memory": "100Mi", "nvidia.com/gpu": 1}
    main = {"name": "main", "image": f"{site.env['LAB_REGISTRY']}/{SHELL}", "command": ["env"]}
    made = cli.run(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "told", "namespace": "physics"},
            "spec": {"restartPolicy": "Never", "containers": [{**main, "resources": {"limits": limits}}]},
        }
    )
    assert made.code == 0, made.err
    document = made.json()
    events = site.story(document["job"]["id"])
    assert words(events) == BATCH
    sound(events, pod=document["uid"])
    assert all(len(event["gpus"]) == 1 for event in events)
    assert "SPANK" not in cli("logs", document["uid"]).out


def test_a_pod_that_wants_only_its_ends_told(site: Site) -> None:
    job = site.submit("exit 3", {"pod-uid": "a-pod", "pod-events": "ends"})
    events = site.story(job)
    assert words(events) == ["batch task_exit", "batch step_end", "released"]
    assert one(events, "task_exit")["exit_code"] == 3


def test_a_job_of_sbatch(site: Site) -> None:
    job = site.sbatch(script="exit 7")
    events = site.story(job)
    assert words(events) == BATCH
    sound(events, pod=None, job=job, array_job=None)
    assert one(events, "task_exit")["exit_code"] == 7
    assert one(events, "step_start")["gpus"] == []


def test_options_by_hand_reach_every_step_and_leave_no_variable(site: Site) -> None:
    job = site.sbatch("--pod-uid=by-hand", script="env; srun env")
    events = site.story(job)
    sound(events, pod="by-hand")
    assert "SPANK" not in site.output(job)
    assert "0 step_start" in words(events)


def test_an_array(site: Site) -> None:
    array = site.sbatch("--array=1,3,7", script="sleep 0.2")
    events = site.story(array, nodes=3)
    for job in {event["job"] for event in events}:
        mine = [event for event in events if event["job"] == job]
        assert words(mine) == BATCH
        sound(mine)
    # slurmd does not tell its prolog that a job is of an array; slurmstepd knows.
    tasks = {e["job"]: e["array_task"] for e in events if "array_task" in e}
    assert sorted(tasks.values()) == [1, 3, 7]
    assert {event["array_job"] for event in events if "array_job" in event} == {array}


def test_two_nodes_and_a_step_over_both(site: Site) -> None:
    job = site.sbatch(
        "-p", "gpu", "-N2", "-n3", "--gres=gpu:a100:1", script="srun -N2 -n3 sh -c 'exit $SLURM_PROCID'"
    )
    events = site.story(job, nodes=2)
    sound(events, job=job)
    step = ["allocated", "0 step_start", "0 task_start", "0 task_exit", "0 step_end", "released"]
    by_node = {
        node: [event for event in events if event["node"] == node] for node in {e["node"] for e in events}
    }
    assert len(by_node) == 2
    first = next(node for node, mine in by_node.items() if "batch step_start" in words(mine))
    for node, mine in by_node.items():
        told = list(dict.fromkeys(words(mine)))  # a node has one task or two
        assert [word for word in told if not word.startswith("batch")] == step
        if node == first:
            assert told.index("batch task_start") < told.index("0 step_start")
            # srun returns when its tasks have, while slurmstepd still clears up behind them.
            assert told.index("0 task_exit") < told.index("batch task_exit")
        assert {tuple(event["gpus"]) for event in mine} == {tuple(mine[0]["gpus"])}
    ends = {
        event["task"]: event["exit_code"]
        for event in events
        if event["event"] == "task_exit" and event["step"] == "0"
    }
    assert ends == {0: 0, 1: 1, 2: 2}


def test_steps_of_srun_have_what_gpus_they_asked_for(site: Site) -> None:
    script = "srun -n1 --gres=gpu:1 true; srun -n1 --gres=none true"
    job = site.sbatch("-p", "gpu", "--gres=gpu:a100:3", script=script)
    events = site.story(job)
    sound(events)
    assert words(events)[:3] == BATCH[:3]
    assert words(events)[-1] == "released"
    for step in ("batch", "0", "1"):
        names = [event["event"] for event in events if event.get("step") == step]
        assert names == ["step_start", "task_start", "task_exit", "step_end"]
    batch = one(events, "step_start", step="batch")["gpus"]
    [gpu] = one(events, "step_start", step="0")["gpus"]
    assert len(batch) == 3
    assert gpu in batch
    assert one(events, "step_start", step="1").get("gpus", []) == []


def test_a_job_of_srun_alone(site: Site) -> None:
    site.exec(
        *("srun", "-A", "physics", "-p", "cpu", "--job-name=alone", "--pod-uid=srun-alone"),
        *("sh", "-c", "echo $SLURM_JOB_ID >/tmp/alone-$$; exit 5"),
        user="alice",
        code=5,
    )
    job = next(
        r["event"]["job"] for r in reversed(site.received()) if (r["event"] or {}).get("pod") == "srun-alone"
    )
    events = site.story(job)
    assert words(events) == [
        "allocated", "0 step_start", "0 task_start", "0 task_exit", "0 step_end", "released",
    ]  # fmt: skip
    sound(events, pod="srun-alone")


def test_a_cancelled_job(site: Site) -> None:
    job = site.sbatch(script="sleep 60")
    site.until(job, "RUNNING")
    site.exec("scancel", str(job))
    events = site.story(job)
    assert words(events) == BATCH
    assert one(events, "task_exit")["signal"] == signal.SIGTERM
    assert "exit_code" not in one(events, "task_exit")


def test_a_job_that_ignores_its_cancel(site: Site) -> None:
    job = site.sbatch(script="trap : TERM; touch /tmp/$SLURM_JOB_ID.up; while :; do sleep 1; done")
    site.until(job, "RUNNING")
    while not (site.root / f"tmp/{job}.up").exists():
        assert site.state(job) == "RUNNING"
    site.exec("scancel", str(job))
    events = site.story(job)
    assert words(events) == BATCH
    assert one(events, "task_exit")["signal"] == signal.SIGKILL


def test_a_job_that_is_killed(site: Site) -> None:
    job = site.sbatch(script="kill -KILL $$")
    events = site.story(job)
    assert words(events) == BATCH
    assert (one(events, "task_exit")["status"], one(events, "task_exit")["signal"]) == (9, 9)


def test_a_job_over_its_time_limit(site: Site) -> None:
    job = site.sbatch("-t", "1", script="sleep 600")
    events = site.story(job, seconds=240)
    assert words(events) == BATCH
    assert one(events, "task_exit")["signal"] == signal.SIGTERM
    assert site.state(job) == "TIMEOUT"


def test_a_job_cancelled_before_it_starts_says_nothing(site: Site) -> None:
    job = site.sbatch("--hold")
    site.exec("scancel", str(job))
    later = site.sbatch()
    site.story(later)
    assert site.events(job) == []


@pytest.mark.parametrize(
    "value", ["x" * 4096, "a b", "a\"b'c", "line\nslurmrest_adapter: forged", "%n%s%n", "", "é", "$(id)"]
)
def test_hostile_values_are_dropped_and_the_job_runs(site: Site, value: str) -> None:
    job = site.submit("echo fine", {"pod-uid": value, "pod-events": value})
    events = site.story(job)
    assert words(events) == BATCH
    sound(events, pod=None)
    assert site.output(job) == "fine\n"
    # Each line of the plugin is one line, and none of them is the user's.
    assert not [line for line in site.logged() if "] slurmrest_adapter: forged" in line]


def test_usage_is_the_kernels(site: Site) -> None:
    script = (
        'python3 -c "b = bytearray(150_000_000); import time; t = time.process_time\nwhile t() < 0.5: pass"'
    )
    job = site.sbatch("--mem=400", script=script)
    used = one(site.story(job), "step_end")
    assert used["peak_bytes"] > 150_000_000
    assert used["cpu_s"] > 0.5

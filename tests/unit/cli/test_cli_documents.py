"""``--output json``: golden documents, each key of which docs/json.md describes.

After a change that is meant: ``REGENERATE_GOLDEN=1 python -m pytest tests/unit/cli``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.store.events import SqliteEvents
from tests.fakes.pods import OTHER_UID, pod
from tests.fakes.shell import GOLDEN, Shell, golden
from tests.fakes.spank import body, event, life
from tests.fakes.world import container_record

PAGE = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")


def document(text: str) -> Any:
    """Standard output is one document and nothing else."""
    return json.loads(text)


def test_a_run_that_ended(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    shell.life(code=3)
    done = shell("run", shell.file(gpu_pod), "--output", "json")
    assert done.exit_code == 3
    golden("run-ended", document(done.stdout))
    assert "hello" in done.stderr  # the log goes beside the document


def test_a_detached_run_that_waits(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    done = shell("run", shell.file(gpu_pod), "--detach", "--output", "json")
    assert done.exit_code == 0
    golden("run-pending", document(done.stdout))


def test_a_preempted_pod(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    shell.life(code=143, word="PREEMPTED")
    done = shell("run", shell.file(gpu_pod), "-o", "json")
    assert done.exit_code == 143
    golden("run-preempted", document(done.stdout))


def test_a_pod_that_starts_again(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    shell("run", shell.file(gpu_pod), "--detach")
    shell.world.slurm.start(100)
    shell.world.clock.sleep(60)
    run = {"reason": "Error", "message": "out of data\nat step 7", "exit_code": 3, "signal": None,
           "started_at": 1_700_000_001.0, "finished_at": 1_700_000_031.0}  # fmt: skip
    waits = {**container_record(state="waiting"), "reason": "CrashLoopBackOff", "started_at": None,
             "message": "back-off 10s", "restart_count": 2, "last_state": run}  # fmt: skip
    shell.world.runner_writes(shell.record(), 3, None, waits)
    golden("status-restarts", document(shell("status", "train", "-o", "json").stdout))


def test_what_the_node_told(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    """A site without GPU accounting and without measured memory; the plugin fills in."""
    shell.settings["spank"] = {"enabled": True}
    shell("run", shell.file(gpu_pod), "--detach")
    world = shell.world
    world.slurm.start(100)
    world.slurm.change(100, gres=(), start_time=None)
    events = SqliteEvents(world.state / "events.sqlite3")
    for changes in life():
        events.add([(event(**changes), body(**changes))], [], {})
    world.clock.sleep(30)
    world.slurm.slurmdbd_down = True
    world.slurm.end(100, "FAILED", 3)
    world.slurm.change(100, start_time=None)
    world.clock.sleep(100)
    golden("status-events", document(shell("status", "train", "-o", "json").stdout))
    told = shell("status", "train").stdout
    assert "node n1 told, start 2023-11-14T22:13:30Z, end 2023-11-14T22:13:40Z, GPUs 0,1" in told
    assert "1.5 CPU-seconds used, peak 3 MiB (6 SPANK events)" in told


def test_an_error(shell: Shell) -> None:
    bad = pod()
    bad["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    done = shell("run", shell.file(bad), "-o", "json")
    assert done.exit_code == 125
    golden("error", document(done.stdout))
    golden("error-without-field", document(run_nowhere(shell)))


def run_nowhere(shell: Shell) -> str:
    done = shell("status", "nobody", "-o", "json")
    assert done.exit_code == 125
    return done.stdout


def test_a_list(shell: Shell, gpu_pod: dict[str, Any]) -> None:
    shell("run", shell.file(gpu_pod), "--detach")
    shell.world.clock.sleep(1)
    shell("run", shell.file(pod(uid=OTHER_UID, name="second")), "--detach")
    golden("status-list", document(shell("status", "-o", "json").stdout))
    assert document(shell("status", "--all", "-o", "json").stdout)["pods"][1]["name"] == "train"


def paths(node: Any, at: str = "") -> Iterator[str]:
    """Every key's path, as docs/json.md writes them: ``containers[].exitCode``."""
    if isinstance(node, dict):
        for key, value in node.items():
            here = f"{at}.{key}" if at else key
            yield here
            yield from paths(value, here)
    elif isinstance(node, list):
        for value in node:
            yield from paths(value, f"{at}[]")


def rows(schema: str) -> set[str]:
    """The fields that a schema's section of the page describes."""
    section = PAGE.split(f"`{schema}`", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


DOCUMENTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GOLDEN.glob("*.json"))
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_key_is_described(name: str) -> None:
    found = set(paths(DOCUMENTS[name]))
    # The same object in two places is described once.
    found = {re.sub(r"^initContainers\[\]", "containers[]", path) for path in found}
    found = {path.replace("containers[].lastState.", "containers[].") for path in found}
    schema = DOCUMENTS[name]["schema"]
    if schema.endswith("/pods/v1"):
        inside = {path.removeprefix("pods[].") for path in found if path.startswith("pods[].")}
        inside = {re.sub(r"^initContainers\[\]", "containers[]", path) for path in inside}
        assert inside <= rows("slurmrest-adapter/pod/v1")
        found = {path for path in found if not path.startswith("pods[].")}
    assert found <= rows(schema)


@pytest.mark.parametrize(
    "schema",
    [f"slurmrest-adapter/{name}/v1" for name in ("pod", "pods", "error", "spank-check", "spank-drain")],
)
def test_every_described_key_is_there(schema: str) -> None:
    described = rows(schema)
    assert described
    found = {path for each in DOCUMENTS.values() if each["schema"] == schema for path in paths(each)}
    assert described <= found


def test_nothing_is_left_out_where_it_is_not_known() -> None:
    """The same keys in a pending and in an ended pod: null, not absent."""
    pending, ended = (DOCUMENTS[name] for name in ("run-pending", "run-ended"))
    assert set(pending) == set(ended)
    assert set(pending["job"]) == set(ended["job"])
    assert set(pending["containers"][0]) == set(ended["containers"][0])

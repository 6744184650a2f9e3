"""Events of the real plugin in a real `serve`: jobs are known at once, and forgeries change nothing.

The lab is one of its own: only one listener can have the address that plugstack.conf names.
"""

from __future__ import annotations

import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.sources.spank import read_key, sign
from slurmrest_adapter.sources.spankpost import post
from tests.fakes.spank import body
from tests.labs import SLURM_LAB, Cli, Lab, container
from tests.slurm.test_serve import Sidecar, with_uid

# Alone, because an event that is answered too late is spooled, and here nothing else tells.
pytestmark = [pytest.mark.slurm, pytest.mark.disruptive]
Pods = Callable[..., dict[str, Any]]
LAB = ("--name", "spank-serve", "--profile", "spank", "--port-base", "9400")
# Far longer than any test: what is known before was known by an event.
POLL = 300
OPTIONS = ("timeout_ms=150", "retry_s=1")


@pytest.fixture(scope="session")
def lab() -> Lab:
    """A lab with the plugin, up."""
    subprocess.run([SLURM_LAB, "up", *LAB], check=True, capture_output=True)
    printed = subprocess.run([SLURM_LAB, "env", *LAB], check=True, capture_output=True, text=True).stdout
    made = Lab(dict(word.split("=", 1) for word in shlex.split(printed)))
    plugstack = Path(made.env["LAB_ROOT"]) / "etc/slurm/plugstack.conf"
    others = [
        word for word in plugstack.read_text().split() if not word.startswith(("timeout_ms=", "retry_s="))
    ]
    plugstack.write_text(" ".join([*others, *OPTIONS]) + "\n")
    return made


@pytest.fixture
def key_file(lab: Lab) -> Path:
    return Path(lab.env["LAB_ROOT"]) / "etc/slurm/sra-spank.key"


@pytest.fixture
def plugged(cli: Cli, lab: Lab, key_file: Path) -> Cli:
    """The command line where the site has the plugin, with a poll that nobody lives to see."""
    return cli.configure(
        spank={"enabled": True, "events": lab.env["LAB_SPANK_EVENTS"], "key_file": str(key_file)},
        slurm={"poll_s": POLL},
    )


@pytest.fixture
def sidecar(plugged: Cli) -> Iterator[Sidecar]:
    path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    running = Sidecar(plugged, path)
    yield running
    running.end()
    path.unlink(missing_ok=True)


def counted(sidecar: Sidecar) -> dict[str, int]:
    found: dict[str, int] = sidecar.ask("GET", "/system-info")["spank_events"]
    return found


def test_a_pods_start_and_end_are_known_by_events_alone(sidecar: Sidecar, plugged: Cli, pod: Pods) -> None:
    made = with_uid(pod(gpus=2, main="sleep 3; exit 3"))
    sidecar.create(made)
    entry = sidecar.until(made, lambda e: e["phase"] == "Running")
    assert len(entry["gpus"]) == 2
    entry = sidecar.until(made, lambda e: e["phase"] == "Failed")
    assert entry["containers"][0]["state"]["terminated"]["exitCode"] == 3
    told = counted(sidecar)
    assert told["taken"] >= 6
    assert 2 <= told["looks"] < 2 * told["taken"]
    document = plugged.until(
        made["metadata"]["uid"], lambda d: bool(d["job"]["events"]["endedAt"] and d["usage"])
    )
    events = document["job"]["events"]
    assert events["gpus"] == document["job"]["gpus"] == entry["gpus"]
    assert events["startedAt"]
    assert events["node"] == document["job"]["node"]
    assert container(document, "main")["exitCode"] == 3


def without_samples(document: dict[str, Any]) -> dict[str, Any]:
    """Without what the runner measures every few seconds."""
    samples = ("cpuSeconds", "memoryMib", "memoryPeakMib")
    containers = [
        {key: value for key, value in one.items() if key not in samples} for one in document["containers"]
    ]
    return {**document, "containers": containers}


def test_what_is_not_the_plugins_changes_nothing_but_a_counter(
    sidecar: Sidecar, lab: Lab, pod: Pods, key_file: Path, plugged: Cli
) -> None:
    made = with_uid(pod(main="sleep 600"))
    job = int(sidecar.create(made)["PodJID"])
    before = sidecar.until(made, lambda e: e["phase"] == "Running")
    uid, address, key = made["metadata"]["uid"], lab.env["LAB_SPANK_EVENTS"], read_key(key_file)
    # The batch step's own start is the last news until the end.
    deadline = time.monotonic() + 60
    while (told := counted(sidecar))["taken"] < 3 or told != counted(sidecar):
        assert time.monotonic() < deadline, told
        time.sleep(1)
    document = plugged.status(uid)
    told = counted(sidecar)
    end = {"kind": "released", "job": job, "time": time.time(), "pod": uid}
    true, replayed = body(**end), body("allocated", job=job, time=time.time(), stream="d" * 16)
    assert post(address, true, "") == 403
    assert post(address, true, sign(b"x" * 48, true)) == 403
    assert post(address, true + b" ", sign(key, true)) == 403
    other = body(**end, cluster="elsewhere")
    assert post(address, other, sign(key, other)) == 204
    old = body(**{**end, "time": time.time() - 400 * 86400})
    assert post(address, old, sign(key, old)) == 204
    strange = body(**{**end, "job": 99_999_999})
    assert post(address, strange, sign(key, strange)) == 204
    now = counted(sidecar)
    assert now == {
        **told,
        "forged": told["forged"] + 3,
        "other_cluster": told["other_cluster"] + 1,
        "stale": told["stale"] + 1,
        "unknown_job": told["unknown_job"] + 1,
    }
    assert sidecar.status(made) == before
    assert without_samples(plugged.status(uid)) == without_samples(document)
    # A true one is taken once; again and again it is the same.
    for _ in range(5):
        assert post(address, replayed, sign(key, replayed)) == 204
    again = counted(sidecar)
    assert (again["taken"], again["duplicate"]) == (now["taken"] + 1, now["duplicate"] + 4)
    # Even a true key can only make us ask: Slurm says that the job runs.
    assert post(address, true, sign(key, true)) == 204
    deadline = time.monotonic() + 60
    while counted(sidecar)["looks"] == again["looks"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert sidecar.status(made)["phase"] == "Running"
    assert lab.exec("squeue", "-h", "-j", str(job), "-o", "%T").strip() == "RUNNING"
    sidecar.call(
        "POST", "/delete", {**made, "metadata": {**made["metadata"], "deletionGracePeriodSeconds": 0}}
    )


def test_events_of_a_sidecar_that_was_away_come_by_a_drain(
    sidecar: Sidecar, plugged: Cli, pod: Pods, lab: Lab
) -> None:
    """None is missing, and each pod knows what its node saw."""
    spool = Path(lab.env["LAB_ROOT"]) / "var/spool/slurmrest-adapter"
    plugged("spank", "drain", str(spool))  # what an earlier test's end left
    sidecar.end()
    pods = [plugged.detach(pod(main="sleep 0.5")) for _ in range(6)]
    ended = [plugged.until(one["uid"], lambda d: d["phase"] == "Succeeded") for one in pods]
    assert [one["job"]["events"] for one in ended] == [None] * 6
    deadline = time.monotonic() + 60
    while len(list(spool.glob("[!.]*.event"))) < 6 * 6:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    sidecar.start()
    before = counted(sidecar)
    done = plugged("spank", "drain", str(spool), "--output", "json")
    assert (done.code, done.json()["kept"]) == (0, 0), done.err
    assert counted(sidecar) == {**before, "taken": before["taken"] + 36}
    assert list(spool.glob("[!.]*.event")) == []
    for one in pods:
        job = plugged.status(one["uid"])["job"]
        assert job["events"]["node"] == job["node"]
        assert job["events"]["startedAt"] <= job["events"]["endedAt"]


def test_a_sites_own_check(sidecar: Sidecar, plugged: Cli, pod: Pods) -> None:
    made = with_uid(pod(main="true"))
    sidecar.create(made)
    sidecar.until(made, lambda e: e["phase"] == "Succeeded")
    done = plugged("spank", "check", "--output", "json")
    document = done.json()
    assert (done.code, document["verdict"]) == (0, "ok"), document
    assert document["counters"]["test"] == 1
    assert {c["subject"] for c in document["checks"]} >= {"key", "listener"}

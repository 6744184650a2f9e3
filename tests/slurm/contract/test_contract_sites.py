"""A pod runs on both releases and on both kinds of site, and its usage says where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from slurmrest_adapter.domain.errors import NotFound, Rejected, Unauthorized
from slurmrest_adapter.slurm.build import TokenSettings
from tests.slurm.conftest import PYTHON, SHELL, Cli, Lab, container
from tests.slurm.contract.conftest import NOTHING, RELEASES, SERVED, SLEEP, UNKNOWN_JOB, Room, site_of, wait

pytestmark = pytest.mark.slurm


def pod(registry: str, name: str = "sites") -> dict[str, object]:
    """Two containers with a GPU each; one fails."""

    def one(name: str, image: str, *command: str) -> dict[str, object]:
        limits = {"cpu": "1", "memory": "100Mi", "nvidia.com/gpu": 1}
        return {
            "name": name,
            "image": f"{registry}/{image}",
            "command": list(command),
            "resources": {"limits": limits},
        }

    script = "import glob, os; print(*glob.glob('/dev/nvidia[0-9]'), os.environ['CUDA_VISIBLE_DEVICES'])"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "physics"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                one("py", PYTHON, "python3", "-c", script),
                one("sh", SHELL, "sh", "-c", "echo /dev/nvidia[0-9] $CUDA_VISIBLE_DEVICES; sleep 2; exit 3"),
            ],
        },
    }


@pytest.mark.parametrize("profile", ["default", "plain"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_gpu_pod(release: str, profile: str, tmp_path: Path) -> None:
    site = site_of(release, profile)
    cli = Cli(Lab(site.env), tmp_path)
    done = cli.run(pod(site.env["LAB_REGISTRY"]))
    assert done.code == 3, done.err
    document = done.json()
    assert (document["phase"], document["exitCode"]) == ("Failed", 3)
    assert {c["name"]: c["exitCode"] for c in document["containers"]} == {"py": 0, "sh": 3}
    taken = {name: container(document, name)["gpus"] for name in ("py", "sh")}
    assert sorted(gpu for gpus in taken.values() for gpu in gpus) == document["job"]["gpus"]
    assert taken["py"] != taken["sh"]
    for name, (gpu,) in taken.items():
        assert cli("logs", document["uid"], "-c", name).out == f"/dev/nvidia{gpu} 0\n"
    usage = document["usage"]
    assert usage["source"] == ("slurmdbd" if profile == "default" else "observed")
    assert (usage["cpus"], usage["memory_mib"], usage["gpus"]) == (2, 200, 2)
    assert usage["gpu_seconds"] == 2 * usage["elapsed_seconds"] > 0
    if profile == "plain":  # nobody measured, which is not the same as nothing
        assert usage["cpu_used_seconds"] is None
        assert usage["max_rss_mib"] is None


PLAIN = [(release, version) for release in RELEASES for version in SERVED[release]]


@pytest.mark.parametrize(("release", "version"), PLAIN, ids=lambda word: word)
def test_the_plain_site(release: str, version: str) -> None:
    """No accounting, nobody sees another's jobs, and one token."""
    site = site_of(release, "plain")
    if version not in site.served:
        pytest.skip(f"the suite has moved on: this lab serves {', '.join(site.served)}")
    written = yaml.safe_load(Path(site.env["SLURMREST_CONFIG"]).read_text())
    settings = written["slurm"]
    assert settings["token"].keys() == {"source", "file"}
    assert settings["service_user"] is None
    assert [line["user"] for line in written["identity"]["map"]] == ["alice"]
    room = Room(
        site, version, site.gateway(version, TokenSettings("file", token_file=settings["token"]["file"]))
    )
    admin = Room(site, version, site.gateway(version))
    gateway = room.gateway
    try:
        asked = room.spec()
        assert gateway.find_by_name(asked.name, "alice") == []
        assert gateway.accounting(UNKNOWN_JOB, "alice") is None
        job_id = room.submit(SLEEP, asked)
        room.running(job_id)
        assert gateway.accounting(job_id, "alice") is None
        assert [job.job_id for job in gateway.find_by_name(asked.name, "alice")] == [job_id]
        # bob's job is there, but not for alice: as if it did not exist.
        theirs = admin.submit(user="bob")
        with pytest.raises(NotFound):
            gateway.job(theirs, "alice")
        # Nor is it touched: there, an attempt to end it would stop slurmctld for good.
        orders: list[Callable[[], None]] = [
            lambda: gateway.cancel(theirs, "alice"),
            lambda: gateway.signal(theirs, "TERM", "alice"),
        ]
        for order in orders:
            with pytest.raises(NotFound):
                order()
        for ids in ([theirs], [theirs, *range(UNKNOWN_JOB, UNKNOWN_JOB + 60)]):
            refused = gateway.cancel_many(ids, "alice")
            assert list(refused) == ids
            assert {type(error) for error in refused.values()} == {NotFound}
        with pytest.raises(Rejected):
            gateway.hold(theirs, "alice")
        assert gateway.ping().up
        assert admin.gateway.states([theirs], "bob")[theirs].states[0] in ("PENDING", "RUNNING")
        with pytest.raises(Unauthorized):
            gateway.submit(room.spec("bob"), NOTHING)
        gateway.cancel(job_id, "alice")
        wait(lambda: gateway.job(job_id, "alice"), lambda job: job.states == ("CANCELLED",))
        gateway.cancel(job_id, "alice")
    finally:
        room.tidy()
        admin.tidy()

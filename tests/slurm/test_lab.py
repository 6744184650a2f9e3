"""The lab itself: what the other tests of this layer stand on."""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slurm

SLURM_LAB = Path(__file__).parents[2] / "scripts" / "slurm-lab"


def lab(*arguments: str, code: int = 0) -> str:
    """Run scripts/slurm-lab, check its exit code and return what it printed."""
    done = subprocess.run([SLURM_LAB, *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def lab_up() -> None:
    lab("up")


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """What `env` prints."""
    return dict(word.split("=", 1) for word in shlex.split(lab("env")))


@pytest.fixture
def shared_folder() -> Iterator[str]:
    """A fresh directory that everybody in the lab may write to, by its path inside."""
    folder = lab("exec", "mktemp", "-d", "-p", "/shared").strip()
    lab("exec", "chmod", "1777", folder)
    yield folder
    lab("exec", "rm", "-rf", folder)


def job(user: str, folder: str, script: str, *options: str) -> str:
    """Run a batch job to its end as that user and return its output."""
    out = f"{folder}/{uuid.uuid4()}"
    lab("exec", "--as", user, "sbatch", "--quiet", "-W", "-o", out, *options, "--wrap", script)
    return lab("exec", "cat", out)


def ask(url: str, **headers: str) -> tuple[int, Any, Any]:
    """Return status, headers and JSON body (None if it is none) of a GET without any proxy."""
    request = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            body = answer.read()
            return answer.status, answer.headers, json.loads(body) if body else None
    except urllib.error.HTTPError as error:
        return error.code, error.headers, None


def test_up_is_idempotent() -> None:
    before = json.loads(lab("status", "--output", "json"))
    assert "was up" in lab("up")
    after = json.loads(lab("status", "--output", "json"))
    assert before["up"]
    assert [d["pid"] for d in after["daemons"]] == [d["pid"] for d in before["daemons"]]


def test_nodes_gres_and_partitions() -> None:
    found = json.loads(lab("status", "--output", "json"))
    gres = {node["name"]: node["gres"] for node in found["nodes"]}
    assert gres == {"n1": "gpu:a100:4", "n2": "gpu:a100:4", "n3": "gpu:l40s:2", "n4": ""}
    assert {p["name"]: p["nodes"] for p in found["partitions"]} == {
        "gpu": "n[1-3]",
        "cpu": "n4",
        "all": "n[1-4]",
    }
    assert [p["name"] for p in found["partitions"] if p["default"]] == ["cpu"]


def test_every_daemon_has_the_pid_of_its_program() -> None:
    for daemon in json.loads(lab("status", "--output", "json"))["daemons"]:
        program = Path(f"/proc/{daemon['pid']}/comm").read_text().strip()
        assert daemon["name"].startswith(program.removeprefix("docker-")), (daemon, program)


def test_exec_passes_arguments_and_exit_code() -> None:
    words = ["", "-x", "--name", 'q"', "it's", "$(id)", "`id`", "a\nb\t", "größer", "--", "a=b"]
    assert lab("exec", "printf", "[%s]", *words) == "".join(f"[{word}]" for word in words)
    assert lab("exec", "--as", "alice", "sh", "-c", "id -un; pwd; exit 7", code=7) == "alice\n/home/alice\n"
    lab("exec", "--as", "alice", "no-such-command", code=127)
    lab("exec", "--as", "nobody-known", "true", code=1)


def test_a_gpu_job_sees_its_gpus(shared_folder: str) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; ls /dev/nvidia?"
    shown, *devices = job("alice", shared_folder, script, "-p", "gpu", "--gres=gpu:a100:2").splitlines()
    assert len(set(shown.split(","))) == 2
    assert devices == [f"/dev/nvidia{i}" for i in range(4)]


def test_who_may_submit(shared_folder: str) -> None:
    assert job("bob", shared_folder, "id -u", "-A", "ai") == "2002\n"
    assert job("alice", shared_folder, "id -u", "-A", "ai", "-p", "cpu", "--reservation=lab") == "2001\n"
    lab("exec", "--as", "carol", "sbatch", "--wrap", "true", code=1)
    lab("exec", "--as", "bob", "sbatch", "-A", "physics", "--wrap", "true", code=1)


def test_tokens_at_slurmrestd(settings: dict[str, str]) -> None:
    base = settings["LAB_REST"] + "/slurm/v0.0.42/"
    token = lab("token", "alice").strip()
    status, _, pings = ask(base + "ping/", X_SLURM_USER_TOKEN=token)
    assert status == 200
    assert [ping["pinged"] for ping in pings["pings"]] == ["UP"]
    status, _, jobs = ask(base + "jobs/", X_SLURM_USER_TOKEN=token)
    assert status == 200
    assert isinstance(jobs["jobs"], list)
    assert ask(base + "jobs/")[0] == 401
    expired = lab("token", "alice", "--lifetime", "-60").strip()
    assert ask(base + "jobs/", X_SLURM_USER_TOKEN=expired)[0] != 200
    head, claims, signature = token.split(".")
    wrong = ".".join((head, claims, signature[::-1]))
    assert ask(base + "jobs/", X_SLURM_USER_TOKEN=wrong)[0] != 200


def test_accounting_answers_the_operator(settings: dict[str, str]) -> None:
    url = settings["LAB_REST"] + "/slurmdb/v0.0.42/user/slurmrest"
    status, _, found = ask(url, X_SLURM_USER_TOKEN=lab("token", "slurmrest").strip())
    assert status == 200
    assert found["users"][0]["administrator_level"] == ["Operator"]


def test_registry_serves_the_images(settings: dict[str, str]) -> None:
    base = f"http://{settings['LAB_REGISTRY']}/v2"
    accept = "application/vnd.oci.image.manifest.v1+json"
    configs = {}
    for image in ("busybox:1", "python:3", "entry:1"):
        name, tag = image.split(":")
        status, headers, manifest = ask(f"{base}/lab/{name}/manifests/{tag}", Accept=accept)
        assert status == 200
        assert headers["Docker-Content-Digest"].startswith("sha256:")
        digest = manifest["config"]["digest"]
        configs[image] = ask(f"{base}/lab/{name}/blobs/{digest}")[2]["config"]
    assert "Entrypoint" not in configs["busybox:1"]
    assert configs["busybox:1"]["Cmd"] == ["sh"]
    assert configs["entry:1"]["WorkingDir"] == "/work/dir"
    assert "ODD_NEWLINE=first\nsecond\n" in configs["entry:1"]["Env"]


def test_apptainer_in_a_job(shared_folder: str, settings: dict[str, str]) -> None:
    inside = "apptainer -s exec --containall"
    pulled = f"{shared_folder}/python.sif"
    source = f"docker://{settings['LAB_REGISTRY']}/lab/python:3"
    script = (
        f"{inside} /shared/images/busybox.sif id -un && "
        f"apptainer -q pull --no-https --disable-cache {pulled} {source} && "
        f"{inside} {pulled} python3 -c 'import json, ssl; print(json.dumps([1]))'"
    )
    lines = job("alice", shared_folder, script).splitlines()
    assert lines[0] == "alice"
    assert lines[-1] == "[1]"


def test_the_shared_directory(shared_folder: str, settings: dict[str, str]) -> None:
    lab("exec", "--as", "alice", "sh", "-c", f"echo seen > {shared_folder}/file")
    seen = Path(settings["LAB_SHARED"], Path(shared_folder).name, "file")
    assert seen.read_text() == "seen\n"
    assert seen.stat().st_uid == 2001
    assert Path(settings["LAB_SHARED"], "pods").stat().st_mode & 0o7777 == 0o711


def test_configuration_names_what_is_there(settings: dict[str, str]) -> None:
    found = yaml.safe_load(Path(settings["SLURMREST_CONFIG"]).read_text())
    assert found["slurm"]["endpoints"] == [settings["LAB_REST"]]
    assert found["images"]["insecure_registries"] == [settings["LAB_REGISTRY"]]
    for path in (found["shared_dir"], found["state_dir"], found["slurm"]["token"]["key_file"]):
        assert Path(path).exists()
    for entry in found["identity"]["map"]:
        assert lab("exec", "id", "-u", entry["user"]) == f"{entry['uid']}\n"


def test_spec_is_what_slurmrestd_generates() -> None:
    spec = json.loads(lab("spec", "v0.0.42"))
    assert "/slurm/v0.0.42/job/submit" in spec["paths"]
    assert "/slurmdb/v0.0.42/jobs/" in spec["paths"]
    lab("spec", "v0.0.1", code=1)


def test_mistakes_are_named() -> None:
    for arguments, word in (
        (("up", "--version", "1.2"), "--version 1.2"),
        (("up", "--profile", "none-such"), "--profile none-such"),
        (("stop", "none-such"), "none-such"),
        (("status", "--name", "a/b"), "--name"),
        (("up", "--name", "other", "--port-base", "80"), "--port-base 80"),
    ):
        done = subprocess.run([SLURM_LAB, *arguments], capture_output=True, text=True)
        assert done.returncode == 1
        assert word in done.stderr
        assert "Traceback" not in done.stderr

"""Pods become the same JobSpec and PodPlan, byte for byte.

The golden files are YAML in, JSON out. After a change that is meant, write them anew with
``REGENERATE_GOLDEN=1 python -m pytest tests/unit/translate/test_pod.py`` and read the difference.
"""

from __future__ import annotations

import base64
import json
import os
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.identity import read
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.translate.pod import Ownership, Translated, time_limit_minutes, translate
from slurmrest_adapter.translate.site import Site
from tests.fakes.pods import container, pod

GOLDEN = Path(__file__).parent / "golden"
KEY = b"golden key of at least 32 bytes!!"
OWNER = Ownership("alice", account="physics", qos=None, partition=None, uid=1001, gid=1001)
SITE = Site(
    "lab",
    partition="main",
    gpu_types={"NVIDIA-A100-SXM4-80GB": "a100"},
    runtime={"name": "apptainer", "insecure_registries": ["127.0.0.1:5000"], "cache": None, "mode": "auto"},
)
DIRECTORY = "/shared/pods/0123456789abcdef0123456789abcdef"


def made(raw: dict[str, Any], site: Site = SITE, owner: Ownership = OWNER) -> Translated:
    return translate(view(raw), owner, site, KEY, DIRECTORY)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_golden(name: str) -> None:
    raw = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
    done = made(raw)
    assert made(raw) == done
    document = {
        "spec": json.loads(done.spec.to_json()),
        "plan": json.loads(done.plan.to_json()),
        "notes": list(done.notes),
    }
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("REGENERATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    # The wire's own bytes, not only a pretty form of them.
    assert done.spec.to_json() == json.dumps(document["spec"], sort_keys=True, separators=(",", ":"))
    assert done.plan.to_json() == json.dumps(document["plan"], sort_keys=True, separators=(",", ":"))
    assert JobSpec.from_json(done.spec.to_json()) == done.spec


@pytest.mark.parametrize(
    ("deadline", "grace", "default", "expected"),
    [
        (None, 30, 3600, 60),
        (None, 30, 3601, 61),
        (None, 30, 1, 1),
        (None, 30, None, None),
        (1, 0, 3600, 2),
        (60, 0, 3600, 2),
        (61, 0, 3600, 3),
        (60, 1, 3600, 3),
        (60, 60, 3600, 3),
        (3600, 30, None, 62),
        (2**31 - 1, 2**31 - 1, None, 2 * 35791395 + 1),
    ],
)
def test_time_limit(deadline: int | None, grace: int, default: int | None, expected: int | None) -> None:
    assert time_limit_minutes(deadline, grace, Site("lab", time_limit_seconds=default)) == expected


@given(st.integers(1, 10**7), st.integers(0, 10**5))
def test_the_limit_stands_above_the_orderly_end(deadline: int, grace: int) -> None:
    minutes = time_limit_minutes(deadline, grace, SITE)
    assert minutes is not None
    assert minutes * 60 >= deadline + grace + 60
    assert minutes * 60 < deadline + grace + 180


# Some plain names are the runtime's own (UID, GID …) and refused; none begins like this.
NAMES = st.text(alphabet=string.ascii_uppercase, max_size=8).map(lambda rest: f"V_{rest}")
TEXT = st.text(alphabet=st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=60)
SECRET = TEXT.map(lambda text: f"s3cr3t-{text}")


def flat(text: str) -> set[str]:
    """Every string of a JSON document."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                found.add(key)
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
        elif isinstance(node, str):
            found.add(node)

    walk(json.loads(text))
    return found


@given(st.dictionaries(NAMES, SECRET, min_size=1, max_size=4), st.lists(SECRET, max_size=3), SECRET)
def test_nothing_of_the_pods_own_text_is_in_the_jobspec(
    env: dict[str, str], args: list[str], word: str
) -> None:
    raw = pod(
        container(
            env=[{"name": name, "value": value} for name, value in env.items()], args=args, command=[word]
        )
    )
    done = made(raw)
    whole = "\n".join(flat(done.spec.to_json()))
    body = done.spec.comment.removeprefix("sra1:").partition(".")[0]
    whole += base64.urlsafe_b64decode(body + "===").decode()
    assert "s3cr3t" not in whole + repr(done.spec) + repr(done.plan) + repr(done.plan.containers)
    # … and neither does the environment change anything else of the job.
    assert done.spec == made(pod()).spec


@given(st.lists(st.tuples(NAMES, TEXT), max_size=5), st.lists(TEXT, max_size=5), st.lists(TEXT, max_size=5))
def test_text_without_references_survives_byte_for_byte(
    env: list[tuple[str, str]], command: list[str], args: list[str]
) -> None:
    def quoted(text: str) -> str:
        return text.replace("$", "$$")

    raw = pod(
        container(
            env=[{"name": name, "value": quoted(value)} for name, value in env],
            command=[quoted(word) for word in command],
            args=[quoted(word) for word in args],
        )
    )
    plan = json.loads(made(raw).plan.to_json())["containers"][0]
    assert [tuple(pair) for pair in plan["env"]] == env
    assert plan["command"] == (command or None)
    assert plan["args"] == (args or None)


def test_64_kilobytes_survive() -> None:
    long = "ab'\"`$ \n\t☃" * 6000
    raw = pod(
        container(args=[long.replace("$", "$$")], env=[{"name": "A", "value": long.replace("$", "$$")}])
    )
    plan = json.loads(made(raw).plan.to_json())["containers"][0]
    assert plan["args"] == [long]
    assert plan["env"] == [["A", long]]


def test_the_identity_on_the_job() -> None:
    done = made(pod(name="x" * 60))
    identity = read(done.spec.comment, KEY)
    assert identity is not None
    assert (identity.uid, identity.namespace, identity.name, identity.cluster) == (
        "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "physics", "x" * 60, "lab",
    )  # fmt: skip
    assert done.spec.name == "x" * 40 + "-0a1b2c3d4e5f"
    assert done.spec.dependency == "singleton"
    assert DIRECTORY not in done.spec.comment + done.spec.name


def test_the_owners_partition_comes_before_the_sites() -> None:
    assert made(pod(), owner=Ownership("alice", partition="gpu")).spec.partition == "gpu"
    assert made(pod()).spec.partition == "main"
    assert made(pod(), site=Site("lab")).spec.partition is None


def test_the_job_inherits_nothing() -> None:
    environment = made(pod()).spec.environment
    assert set(environment) == {"PATH", "HOME", "USER", "LANG", "SRA_POD_DIR"}
    assert environment["SRA_POD_DIR"] == DIRECTORY


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("docker.io/lab/a:1", "docker://mirror.example.org/hub/lab/a:1"),
        ("docker.io/lab/special/b:1", "docker://special.example.org/b:1"),
        ("ghcr.io/lab/c:1", "docker://ghcr.io/lab/c:1"),
    ],
)
def test_the_longest_prefix_of_the_image_map_counts(image: str, expected: str) -> None:
    site = Site(
        "lab",
        image_map={"docker.io/": "mirror.example.org/hub/", "docker.io/lab/special/": "special.example.org/"},
    )
    assert made(pod(container(image=image)), site=site).plan.containers[0].image == expected


@pytest.mark.parametrize(
    ("image", "policy", "expected"),
    [
        ("busybox", None, "Always"),
        ("busybox:latest", None, "Always"),
        ("busybox:1", None, "IfNotPresent"),
        ("busybox", "Never", "Never"),
        ("busybox:1", "", "IfNotPresent"),
    ],
)
def test_pull_policy(image: str, policy: str | None, expected: str) -> None:
    raw = pod(container(image=image, imagePullPolicy=policy))
    assert made(raw).plan.containers[0].pull_policy == expected


def test_the_host_name() -> None:
    assert made(pod(name="a" * 62 + ".b")).plan.hostname == "a" * 62
    assert made(pod(hostname="worker-0")).plan.hostname == "worker-0"


@pytest.mark.parametrize(
    ("raw", "kind", "field"),
    [
        (pod(hostname="a b"), Invalid, "spec.hostname"),
        (pod(hostname="a.b"), Invalid, "spec.hostname"),
        (pod(container(workingDir="tmp")), Invalid, "spec.containers[0].workingDir"),
        (pod(container(workingDir="/a\0b")), Invalid, "spec.containers[0].workingDir"),
        (pod(container(imagePullPolicy="Sometimes")), Invalid, "spec.containers[0].imagePullPolicy"),
        (pod(container(image="lab/UPPER")), Invalid, "spec.containers[0].image"),
        (pod(container(command=["a\0"])), Invalid, "spec.containers[0].command[0]"),
        (pod(container(livenessProbe={"exec": {}})), Unsupported, "spec.containers[0].livenessProbe"),
        (
            pod(container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])),
            Unsupported,
            "spec.containers[0].env[0].valueFrom.secretKeyRef",
        ),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(
    raw: dict[str, Any], kind: type[PodError], field: str
) -> None:
    with pytest.raises(kind) as caught:
        made(raw)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("pods", "own", "app", "init"),
    [
        (None, None, "Always", "OnFailure"),
        ("Always", None, "Always", "OnFailure"),
        ("OnFailure", None, "OnFailure", "OnFailure"),
        ("Never", None, "Never", "Never"),
        ("Never", "OnFailure", "OnFailure", "OnFailure"),
        ("Always", "Never", "Never", "Never"),
        ("Never", "Always", "Always", "Always"),
    ],
)
def test_restart_policies(pods: str | None, own: str | None, app: str, init: str) -> None:
    """An init container is done once it succeeded, whatever the pod's policy; its own makes it a sidecar."""
    raw = pod(container(restartPolicy=own), restartPolicy=pods)
    raw["spec"]["initContainers"] = [container("first", restartPolicy=own)]
    first, main = made(raw).plan.containers
    assert (main.restart_policy, main.sidecar) == (app, False)
    assert (first.restart_policy, first.sidecar) == (init, own == "Always")


@pytest.mark.parametrize(
    ("site", "wish", "got"),
    [(False, None, False), (True, None, True), (False, "true", True), (True, "false", False)],
)
def test_a_pod_may_wish_to_be_requeued(site: bool, wish: str | None, got: bool) -> None:
    raw = pod(container())
    if wish is not None:
        raw["metadata"]["annotations"] = {"slurm-job.vk.io/requeue": wish}
    translated = made(raw, site=Site("lab", requeue=site))
    # A job that may start again needs its plan again.
    assert (translated.spec.requeue, translated.plan.once) == (got, not got)


@pytest.mark.parametrize("wish", ["yes", "", True])
def test_a_wish_that_nobody_understands_is_none(wish: Any) -> None:
    raw = pod(container())
    raw["metadata"]["annotations"] = {"slurm-job.vk.io/requeue": wish}
    with pytest.raises(Invalid) as caught:
        made(raw)
    assert caught.value.field == "metadata.annotations[slurm-job.vk.io/requeue]"


def test_last_words() -> None:
    fields = {"terminationMessagePath": "/a//b/./c", "terminationMessagePolicy": "FallbackToLogsOnError"}
    plain, own = made(pod(container("a"), container("b", **fields))).plan.containers
    assert (plain.message_path, plain.message_policy) == ("/dev/termination-log", "File")
    assert (own.message_path, own.message_policy) == ("/a/b/c", "FallbackToLogsOnError")


@pytest.mark.parametrize("path", ["a", "/", "//", "/a/../b", "/a\0b"])
def test_last_words_go_to_a_file(path: str) -> None:
    with pytest.raises(Invalid) as caught:
        made(pod(container(terminationMessagePath=path)))
    assert caught.value.field == "spec.containers[0].terminationMessagePath"


def test_what_is_ignored_is_said() -> None:
    raw = pod(container(tty=True), restartPolicy="Always", securityContext={"runAsUser": 0})
    fields = [note.partition(": ")[0] for note in made(raw).notes]
    assert sorted(fields) == ["spec.containers[0].tty", "spec.securityContext.runAsUser"]
    with pytest.raises(Unsupported):
        made(raw, site=Site("lab", run_as_user="refuse"))


def test_options_for_the_spank_plugin_only_where_the_site_has_it() -> None:
    plain, with_plugin = made(pod()), made(pod(), replace(SITE, spank=True))
    option = "_SLURM_SPANK_OPTION_slurmrest_adapter_pod_uid"
    assert option not in plain.spec.environment
    assert with_plugin.spec.environment == {**plain.spec.environment, option: pod()["metadata"]["uid"]}
    assert replace(with_plugin.spec, environment=plain.spec.environment) == plain.spec
    assert with_plugin.plan == plain.plan

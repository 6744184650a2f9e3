"""What is secret in a pod is where its containers are and nowhere else, at the noisiest logging.

Every search is proved to work on a plain job that carries a marker of its own in each place.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab
from tests.slurm.test_serve import Sidecar

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]

# Starts the program with every logger at its lowest level, structlog's too.
NOISY = """
import logging, runpy, sys, structlog
logging.basicConfig(level=1, stream=sys.stderr)
made = structlog.make_filtering_bound_logger
structlog.make_filtering_bound_logger = lambda level: made(logging.DEBUG)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
DUMP = "mariadb-dump --no-defaults --socket=/run/mysqld/mysqld.sock --single-transaction slurm_acct_db"

# What is no text is not ours.
TEXT = r"LC_ALL=C tr -c '\11\12\40-\176' '.'"


@dataclass
class Markers:
    """Values that must not be found, in the forms in which they could be."""

    by_name: dict[str, str] = field(default_factory=dict)

    def make(self, name: str) -> str:
        # Long enough to be no accident, and of letters that every form keeps.
        self.by_name[name] = f"marker{secrets.token_hex(12)}"
        return self.by_name[name]

    def found_in(self, text: str | bytes) -> set[str]:
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        return {name for name, value in self.by_name.items() if any(form in data for form in _forms(value))}


def _forms(value: str) -> Iterable[bytes]:
    """The value itself, and as it is inside base64 at each of its three places."""
    yield value.encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + value.encode())
        yield coded[4 if shift else 0 : -4]


class Watch(threading.Thread):
    """Reads the arguments of all processes of the machine, the lab's too, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(0.005):
            for pid in filter(str.isdigit, (path.name for path in Path("/proc").iterdir())):
                with contextlib.suppress(OSError):
                    self.seen.add(Path("/proc", pid, "cmdline").read_bytes())

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_asked.set()
        self.join()


@pytest.fixture
def markers() -> Markers:
    return Markers()


@pytest.fixture
def noisy(cli: Cli, lab: Lab, tmp_path: Path, markers: Markers) -> Cli:
    """The command line at its noisiest, with a token that is known, so that it can be searched for."""
    token = lab.token("alice")
    markers.by_name["token"] = token.rpartition(".")[2]  # the signature is the secret part
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(token)
    only_alice = [entry for entry in lab.config()["identity"]["map"] if entry["user"] == "alice"]
    slurm = {"token": {"source": "file", "file": str(path)}, "service_user": None}
    made = cli.configure(slurm=slurm, identity={"map": only_alice})
    return replace(made, prefix=[sys.executable, "-c", NOISY])


def kept_by_slurm(lab: Lab, job: str) -> dict[str, str]:
    """All that Slurm shows or keeps of a job, as root sees it, by the way it is seen."""
    shown = {
        "script": lab.exec("scontrol", "write", "batch_script", job, "-"),
        "job": lab.exec("scontrol", "show", "job", "-dd", job),
        "json": lab.exec("scontrol", "--json", "show", "job", job),
        "state": lab.exec("sh", "-c", f"find /var/lib/slurm/slurmctld -type f -exec cat {{}} + | {TEXT}"),
        "logs": lab.exec("sh", "-c", f"find /var/log/slurm /var/log/lab -type f -exec cat {{}} + | {TEXT}"),
        "slurmdbd": lab.exec("sacct", "--duplicates", "--format=ALL", "-p", "-j", job),
        "sacct -B": lab.exec("sacct", "-B", "-j", job),
        "sacct --env-vars": lab.exec("sacct", "--env-vars", "-j", job),
        "database": lab.exec("sh", "-c", DUMP),
    }
    # It was this job's: an empty answer would prove nothing.
    assert all(shown[name] for name in ("script", "job", "slurmdbd", "database"))
    assert f"JobId={job}" in shown["job"]
    return shown


def until_accounted(lab: Lab, job: str) -> None:
    """slurmdbd hears of an end some time after slurmctld."""
    done = f"sacct -nXj {job} -o end | grep -qE '[0-9]' && ! sacct -nXj {job} -o state | grep -qE 'RUN|PEND'"
    lab.exec("sh", "-c", f"for i in $(seq 300); do {done} && exit; sleep 0.1; done; exit 1")


@pytest.fixture
def control(lab: Lab) -> Iterator[tuple[str, Markers]]:
    """A plain job that runs, with a marker in each place where one could be looked for."""
    markers = Markers()
    env, script, comment, name, path = (
        markers.make(what) for what in ("environment", "script", "comment", "name", "path")
    )
    job = lab.exec(
        "sbatch", "--parsable", "--partition=all", f"--output=/tmp/{path}", f"--comment={comment}",
        f"--job-name={name}", f"--export=PATH,SECRET={env}",
        f"--wrap=: {script}; exec sleep 1000", user="alice",
    ).strip()  # fmt: skip
    yield job, markers
    lab.exec("scancel", job)
    lab.exec("rm", "-f", f"/tmp/{path}")


def test_the_searches_find_what_is_there(lab: Lab, control: tuple[str, Markers]) -> None:
    job, markers = control
    lab.exec(
        "sh", "-c", f"for i in $(seq 300); do squeue -hj {job} -t R | grep -q . && exit; sleep 0.1; done"
    )
    shown = kept_by_slurm(lab, job)
    assert markers.found_in(shown["script"]) == {"script"}
    assert markers.found_in(shown["job"]) >= {"comment", "name", "path"}
    assert markers.found_in(shown["state"]) >= {"environment", "script"}
    lab.exec("scancel", job)
    until_accounted(lab, job)
    shown = kept_by_slurm(lab, job)
    assert markers.found_in(shown["sacct --env-vars"]) >= {"environment"}
    assert markers.found_in(shown["sacct -B"]) == {"script"}
    assert markers.found_in(shown["slurmdbd"]) >= {"comment", "name", "path"}
    assert markers.found_in(shown["database"]) == set(markers.by_name)
    told = Markers()
    with Watch() as watch:
        lab.exec("sh", "-c", f": {told.make('argument')}; sleep 0.3")
    assert told.found_in(b"\0".join(watch.seen)) == {"argument"}
    coded = base64.b64encode(b"x" + told.make("coded").encode() + b"yz").decode()
    assert told.found_in(coded) == {"coded"}


def secretive(pod: Pods, markers: Markers) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A pod full of secrets that shows that it has them, and its Secret and ConfigMap."""
    values = {name: markers.make(name) for name in ("file", "variable", "literal", "config")}
    script = 'cat /secret/file /config/key | wc -c; echo "$FROM $LITERAL" | wc -c; sleep 1'
    made = pod(
        main={
            "command": ["sh", "-c", script],
            "env": [
                {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "variable"}}},
                {"name": "LITERAL", "value": values["literal"]},
            ],
            "volumeMounts": [
                {"name": "secret", "mountPath": "/secret"},
                {"name": "config", "mountPath": "/config"},
            ],
        },
        spec={
            "volumes": [
                {"name": "secret", "secret": {"secretName": "keys"}},
                {"name": "config", "configMap": {"name": "settings"}},
            ]
        },
    )
    keys = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "physics"},
        "data": {name: base64.b64encode(values[name].encode()).decode() for name in ("file", "variable")},
    }
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "physics"},
        "data": {"key": values["config"]},
    }
    return made, keys, settings


def test_secrets_are_in_no_argument_script_log_path_or_database(
    noisy: Cli, pod: Pods, lab: Lab, markers: Markers
) -> None:
    made, keys, settings = secretive(pod, markers)
    with Watch() as watch:
        done = noisy.run(made, keys, settings)
        document = done.json()
        followed = [noisy(*words, document["uid"]) for words in (("status",), ("logs",), ("delete",))]
    assert done.code == 0, done.err
    assert followed[1].out.split() == ["60", "62"]  # it had them all
    assert "DEBUG" in done.err
    assert "POST /slurm/" in done.err
    job = str(document["job"]["id"])
    until_accounted(lab, job)
    directory = next(
        path.parent
        for path in Path(lab.env["LAB_SHARED"], "pods").glob("*/status.json")
        if json.loads(path.read_text())["uid"] == document["uid"]
    )
    left = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    texts: dict[str, str | bytes] = {
        **kept_by_slurm(lab, job),
        "arguments": b"\0".join(watch.seen),
        "what run said": done.out + done.err,
        "what the others said": "".join(one.out + one.err for one in followed),
        "what is left of the pod": left,
        "the store": b"".join(path.read_bytes() for path in noisy.directory.rglob("pods.sqlite3*")),
    }
    assert {name: found for name, text in texts.items() if (found := markers.found_in(text))} == {}
    # Nor any other token: they all begin alike.
    everything = b"".join(text if isinstance(text, bytes) else text.encode() for text in texts.values())
    assert not re.search(rb"eyJ[\w-]{8,}\.eyJ", everything)


def test_secrets_are_in_no_log_of_serve(noisy: Cli, pod: Pods, lab: Lab, markers: Markers) -> None:
    made, keys, settings = secretive(pod, markers)
    made["metadata"]["uid"] = str(uuid.uuid4())
    env = made["spec"]["containers"][0]["env"]
    env[0] = {"name": "FROM", "value": markers.by_name["variable"]}  # as who asks has resolved it
    path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    container = {"name": "main", "secrets": [keys], "configMaps": [settings]}
    with Watch() as watch:
        sidecar = Sidecar(noisy, path)
        try:
            sidecar.ask("POST", "/create", {"pod": made, "container": [container]})
            entry = sidecar.until(made, lambda entry: entry["phase"] in ("Succeeded", "Failed"))
            # What is wrong with a pod is said too, and not by its values.
            wrong = json.loads(json.dumps(made))
            wrong["metadata"]["uid"] = str(uuid.uuid4())
            wrong["spec"]["containers"][0]["env"].append({"name": "", "value": markers.by_name["literal"]})
            refused = sidecar.call("POST", "/create", {"pod": wrong, "container": [container]})
        finally:
            log = sidecar.end()
            path.unlink(missing_ok=True)
    assert entry["phase"] == "Succeeded", entry
    assert refused[0] == 400, refused
    assert '"level": "debug"' in log or "DEBUG" in log
    until_accounted(lab, entry["JID"])
    texts: dict[str, str | bytes] = {
        **kept_by_slurm(lab, entry["JID"]),
        "arguments": b"\0".join(watch.seen),
        "log": log,
        "answers": json.dumps([entry, refused]),
    }
    assert {name: found for name, text in texts.items() if (found := markers.found_in(text))} == {}


def test_in_the_environment_slurm_keeps_the_plan_as_the_doctor_says(
    noisy: Cli, pod: Pods, lab: Lab, markers: Markers
) -> None:
    """And nothing else has it: neither arguments, script and logs, nor what the pod leaves behind."""
    made, keys, settings = secretive(pod, markers)
    with Watch() as watch:
        done = noisy.configure(plan={"delivery": "environment"}).run(made, keys, settings)
    assert done.code == 0, done.err
    job = str(done.json()["job"]["id"])
    until_accounted(lab, job)
    shown = kept_by_slurm(lab, job)
    piece = re.search(r"SRA_PLAN_0=([A-Za-z0-9+/=]{60})", shown["sacct --env-vars"])
    assert piece is not None
    assert piece[1] in shown["database"]
    markers.by_name["piece"] = piece[1]
    shared = ("script", "job", "json", "logs", "slurmdbd", "sacct -B")
    texts: dict[str, str | bytes] = {name: shown[name] for name in shared}
    texts |= {"arguments": b"\0".join(watch.seen), "what run said": done.out + done.err}
    assert {name: found for name, text in texts.items() if (found := markers.found_in(text))} == {}

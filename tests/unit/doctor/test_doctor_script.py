"""The batch script, run for real by a shell on this machine."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurmrest_adapter.doctor import node, script, told
from slurmrest_adapter.runtimes.script import job_script


def run(place: Path, python: str = "python3") -> int:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "SRA_DOCTOR_DIR": str(place),
        "SLURMD_NODENAME": "n7",
    }
    batch = place.parents[1] / "batch"
    batch.write_text(script.doctor_script(python))
    done = subprocess.run(["sh", str(batch)], text=True, env=env, capture_output=True, timeout=60)
    assert done.stderr == ""
    return done.returncode


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "pods" / "d"
    path.mkdir(parents=True)
    (path / node.QUESTION).write_text(
        json.dumps({"nonce": "abc", "registries": ["127.0.0.1:1"], "cache": None, "runner": __file__})
    )
    return path


def findings(place: Path) -> told.Told:
    return told.parse((place / node.FINDINGS).read_bytes())


def test_it_tells_what_this_machine_has(place: Path) -> None:
    assert run(place, sys.executable) == 0
    found = findings(place)
    assert isinstance(found, told.Findings), found
    assert found.nonce == "abc"
    assert found.node == "n7"
    assert found.python.version == ".".join(map(str, sys.version_info[:3]))
    assert found.directory.me == os.getuid()
    assert "refused" in found.registries["127.0.0.1:1"]
    assert found.cache.path == "/var/tmp"
    content = Path(__file__).read_bytes().replace(b"\n", b"")
    assert found.runner == hashlib.sha256(content).hexdigest()
    assert (place / node.FINDINGS).stat().st_mode & 0o777 == 0o600
    assert {path.name for path in place.iterdir()} == {node.QUESTION, node.FINDINGS}


def test_an_old_python(place: Path, tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text('#!/bin/sh\ncase "$2" in *write*) printf 2.7.18 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    assert run(place, str(old)) == 0
    found = findings(place)
    assert isinstance(found, told.NoPython)
    assert found.version == "2.7.18"
    assert found.node == "n7"


def test_directories_that_are_not_there(place: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "pods" / "nowhere" / "d") == script.NO_SHARED
    assert run(place.parent / "other") == script.NO_DIRECTORY


def test_a_question_nobody_can_read(place: Path) -> None:
    (place / node.QUESTION).write_text("{")
    assert run(place, sys.executable) == 0
    assert isinstance(findings(place), told.Broken)


def test_the_interpreter_is_found_as_the_runner_finds_it() -> None:
    def candidates(text: str) -> list[str]:
        return re.findall(r"for python in (.*); do", text)

    assert candidates(script.doctor_script("python3")) == candidates(job_script("python3"))
    assert candidates(job_script("python3"))


def test_the_script_is_the_same_for_all_and_small() -> None:
    assert script.doctor_script("python3") == script.doctor_script("python3")
    assert len(script.doctor_script("python3")) < 60_000
    assert "'/opt/my python'" in script.doctor_script("/opt/my python")


def test_what_runs_on_nodes_is_python_3_6() -> None:
    path = Path(node.__file__)
    ast.parse(path.read_text(), feature_version=(3, 6))
    command = [sys.executable, "-c", "import vermin; vermin.main()", "--no-tips", "--violations", "-t=3.6-"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

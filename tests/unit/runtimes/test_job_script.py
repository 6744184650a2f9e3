"""The batch script: the same bytes for every pod, small, nothing of a pod in it, and it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmrest_adapter.cli.main import cli
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.runtimes.apptainer import ApptainerRuntime
from slurmrest_adapter.runtimes.base import Runtime
from slurmrest_adapter.runtimes.script import LIMIT, job_script, packed


def run(script: str, pod: Path, path: str, **environ: str) -> subprocess.CompletedProcess[str]:
    file = pod.parent / "script"
    file.write_text(script)
    return subprocess.run(
        ["/bin/sh", file],
        env={"PATH": path, "SRA_POD_DIR": str(pod), **environ},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    folder = tmp_path / "pod"
    folder.mkdir()
    return folder


def test_the_same_bytes_in_every_process() -> None:
    code = "from slurmrest_adapter.runtimes.script import job_script; print(job_script(), end='')"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {job_script().encode("ascii")}


def test_small_and_clean() -> None:
    script = job_script()
    assert len(script) < LIMIT
    assert script.startswith("#!")
    assert max(map(len, script.splitlines())) <= 120


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_it_starts_the_runner_in_place_of_the_shell(pod: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    file = pod.parent / "script"
    file.write_text(job_script(sys.executable))
    done = subprocess.run(
        [program, file], env={"PATH": os.defpath, "SRA_POD_DIR": str(pod)}, capture_output=True, text=True
    )
    log = (pod / "runner.log").read_text()
    assert (done.returncode, done.stdout, done.stderr) == (125, "", ""), log
    assert log == "plan: plan.json: No such file or directory\n"
    assert (pod / "runner.log").stat().st_mode & 0o777 == 0o600
    assert (pod / "status.json").exists()


def test_a_missing_python_is_said(pod: Path, tmp_path: Path) -> None:
    script = job_script("python-of-the-site")
    # Nothing that the script falls back to either.
    script = re.sub(r" /usr/[^\s;]+", "", script)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run(script, pod, str(empty))
    assert done.returncode == 125
    assert (pod / "runner.log").read_text() == (
        "the pod runner needs Python 3.6 or newer, but this node has no python-of-the-site\n"
    )


def test_an_old_python_is_said(pod: Path, tmp_path: Path) -> None:
    # The check itself must be readable by an old Python: run it with a version that claims to be one.
    boot = re.search(r"-c '(.*?)' 9<<", job_script(), re.DOTALL)
    assert boot is not None
    assert "'" not in boot[1]
    pretend = "import sys; sys.version_info = (3, 5, 9); sys.version = '3.5.9 old'\n"
    done = subprocess.run([sys.executable, "-c", pretend + boot[1]], capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs Python 3.6 or newer" in done.stderr
    assert "3.5.9" in done.stderr
    python2 = shutil.which("python2.7")
    if python2 and subprocess.run([python2, "-V"], capture_output=True).returncode == 0:
        done = subprocess.run([python2, "-c", boot[1]], capture_output=True, text=True)
        assert (done.returncode, "needs Python 3.6" in done.stderr) == (1, True)


def test_a_python_without_bz2_is_said(pod: Path, tmp_path: Path) -> None:
    # One that was built where bzip2's headers were not.
    python = tmp_path / "python-without"
    lacking = "import sys; sys.modules['_bz2'] = None; exec(sys.argv[1])"
    python.write_text(
        f'#!/bin/sh\nwhile [ "$1" != -c ]; do shift; done\nexec {sys.executable} -c "{lacking}" "$2"\n'
    )
    python.chmod(0o755)
    done = run(job_script(str(python)), pod, os.defpath)
    assert done.returncode == 1
    log = (pod / "runner.log").read_text()
    assert re.fullmatch(r"the pod runner needs Python with its bz2 module, which \S+ lacks\n", log)


def test_tracebacks_show_the_packed_source(pod: Path) -> None:
    (pod / "claim").mkdir()  # the runner expects a file here
    done = run(job_script(sys.executable), pod, os.defpath)
    log = (pod / "runner.log").read_text()
    assert done.returncode == 125
    assert "podrunner/status.py" in log
    assert "with open(path) as stream:" in log


class TestInstalled:
    @pytest.fixture
    def runner(self, tmp_path: Path) -> Path:
        """Where a site has put it; its name is no shell text."""
        path = tmp_path / "pod $(touch no) runner"
        path.write_text(packed() + "\n")
        return path

    def test_the_script_is_short_and_starts_what_is_there(self, pod: Path, runner: Path) -> None:
        script = job_script(sys.executable, str(runner))
        assert len(script) < 4000
        done = run(script, pod, os.defpath)
        assert (pod / "runner.log").read_text() == "plan: plan.json: No such file or directory\n"
        assert done.returncode == 125
        assert (pod / "status.json").exists()

    def test_it_is_not_there(self, pod: Path, runner: Path) -> None:
        runner.unlink()
        done = run(job_script(sys.executable, str(runner)), pod, os.defpath)
        assert done.returncode == 125
        assert (pod / "runner.log").read_text() == (
            f"podrunner.path: the pod runner is not there on this node: {runner}\n"
        )

    @pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: "x" + text[1:], lambda _: ""])
    def test_it_is_another_releases(self, pod: Path, runner: Path, change: Callable[[str], str]) -> None:
        runner.write_text(change(packed()))
        done = run(job_script(sys.executable, str(runner)), pod, os.defpath)
        assert done.returncode == 1
        assert (pod / "runner.log").read_text() == (
            "podrunner.path: the pod runner there is of another release: install it anew\n"
        )

    def test_the_command_prints_it(self) -> None:
        done = CliRunner().invoke(cli, ["podrunner"])
        assert (done.exit_code, done.stdout) == (0, packed() + "\n")
        assert job_script().count(packed()) == 1

    def test_the_runtime(self, runner: Path) -> None:
        runtime = ApptainerRuntime(runner=str(runner))
        assert runtime.job_script() == job_script("python3", str(runner))

    @pytest.mark.parametrize("path", ["", "/a\nb"])
    def test_a_wrong_path(self, path: str) -> None:
        with pytest.raises(ConfigError, match=r"podrunner\.path"):
            job_script("python3", path)


@pytest.mark.parametrize("python", ["", "python3\nrm -rf /", "a\0b"])
def test_a_wrong_interpreter_is_refused(python: str) -> None:
    with pytest.raises(ConfigError, match=r"podrunner\.python"):
        job_script(python)


def test_an_interpreters_name_is_no_shell_text(pod: Path) -> None:
    script = job_script("/opt/my $(touch /tmp/no) python")
    assert "'/opt/my $(touch /tmp/no) python'" in script


def test_the_runtime() -> None:
    runtime: Runtime = ApptainerRuntime(("r:5000",), "/scratch", "plain", "/usr/bin/python3.9")
    assert runtime.plan_section() == {
        "name": "apptainer",
        "insecure_registries": ["r:5000"],
        "cache": "/scratch",
        "mode": "plain",
    }
    assert runtime.job_script() == job_script("/usr/bin/python3.9")

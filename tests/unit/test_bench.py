"""The benchmarks' own arithmetic: medians, bounds, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import __main__ as program
from bench.rounds import Verdict, ratios

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("each", "least", "most", "passed"),
    [
        ([0.5, 0.9, 0.9], 0.8, None, True),  # one slow round does not decide
        ([0.9, 0.7, 0.7], 0.8, None, False),
        ([1.0, 2.0, 90.0], None, 3.0, True),
        ([4.0, 4.0, 1.0], None, 3.0, False),
        ([100.0], None, None, True),
    ],
)
def test_the_median_decides(each: list[float], least: float | None, most: float | None, passed: bool) -> None:
    verdict = Verdict("this / that", each, least, most)
    assert verdict.passed is passed
    assert ("FAILED" in verdict.line()) is not passed


def test_each_round_runs_both_and_changes_who_goes_first() -> None:
    said: list[str] = []
    found = ratios(lambda: said.append("s"), lambda: said.append("c"), 4)
    assert len(found) == 4
    assert "".join(said[2:]) == "sccssccs"


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {"startup": Verdict("a", [1.0], most=3), "submit": Verdict("b", [0.1], least=0.8)}
    monkeypatch.setattr(
        "importlib.import_module",
        lambda name: SimpleNamespace(run=lambda: [verdicts[name.partition(".")[2]]]),
    )
    assert program.main(["startup"]) == 0
    assert program.main(["submit", "startup"]) == 1
    assert "submit: b: median ratio 0.1" in capsys.readouterr().out
    assert program.main(["nothing"]) == 2


def test_every_benchmark_is_documented_and_there() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in program.NAMES:
        assert f"| `{name}` |" in page
        assert (ROOT / "bench" / f"{name.replace('-', '_')}.py").exists()


def test_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "no-such"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "startup, translate, submit, states" in done.stdout) == (2, True)


def test_commands_load_no_web_server() -> None:
    """What would make each command slow to start."""
    program = (
        "import sys; from slurmrest_adapter.cli import main, run, status, logs, delete, serve;"
        "print(*{'fastapi', 'uvicorn', 'kubernetes', 'jwt', 'rich', 'cryptography'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # structlog, which `serve` logs with, may bring rich along.
    assert set(done.stdout.split()) <= {"rich"}


def test_the_command_line_alone_loads_no_command() -> None:
    program = (
        "import sys; import slurmrest_adapter.cli.main;"
        "print(*{'pydantic', 'requests', 'yaml', 'rich', 'structlog', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []

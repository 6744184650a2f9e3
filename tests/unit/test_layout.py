"""The layout's rules: imports go one way, modules stay small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400
WRITTEN = [
    path
    for folder in ("slurmrest_adapter", "vk_provider", "scripts", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_imports_keep_to_the_layers() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_modules_are_short() -> None:
    assert len(WRITTEN) > 100
    long = {str(path.relative_to(ROOT)): lines for path in WRITTEN if (lines := count(path)) > LONGEST}
    # A test module may be a long list of cases; a program's module may not.
    assert {name: lines for name, lines in long.items() if not name.startswith("tests/")} == {}


def count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("folder", ["slurmrest_adapter", "vk_provider"])
def test_every_module_says_what_it_is(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        assert path.read_text(encoding="utf-8").lstrip().startswith('"""'), path

"""The sidecar starts no program: everything goes through slurmrestd."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli

pytestmark = pytest.mark.slurm


def test_run_is_one_process(cli: Cli, pod: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=execve,execveat,fork,vfork,clone,clone3"
    traced = replace(cli, prefix=["strace", "-f", "-qq", "-e", calls, "-o", str(trace)])
    done = traced.run(pod(left="echo hello", right="echo there"))
    assert done.code == 0, done.err
    lines = trace.read_text().splitlines()
    executed = [line for line in lines if re.search(r"\bexecve(at)?\(", line)]
    assert len(executed) == 1, executed
    started = [line for line in lines if re.search(r"\b(v?fork|clone3?)\(", line)]
    # A thread shares the process's memory and is of its thread group; anything else is a child.
    assert started
    assert [line for line in started if "CLONE_THREAD" not in line] == []

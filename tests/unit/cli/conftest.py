"""The command line on a small Slurm in memory and a made-up clock."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.cli import build
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.deps import Deps
from tests.fakes.pods import container, pod
from tests.fakes.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in [name for name in os.environ if name.startswith("SLURMREST_")]:
        monkeypatch.delenv(name)
    made = Shell(tmp_path)
    clock = made.world.clock
    monkeypatch.setattr(build, "gateway_of", lambda settings: made.world.slurm)
    monkeypatch.setattr(build, "Deps", partial(Deps, clock=clock, sleep=clock.sleep))
    monkeypatch.setattr(build, "SqliteStore", partial(SqliteStore, clock=clock))
    monkeypatch.setattr(build, "SqliteEvents", partial(SqliteEvents, clock=clock))
    return made


@pytest.fixture
def gpu_pod() -> dict[str, Any]:
    """A pod of two GPUs and one container."""
    return pod(container(resources={"limits": {"nvidia.com/gpu": 2, "cpu": 2, "memory": "1Gi"}}))

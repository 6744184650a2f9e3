"""The layer `slurm`: the command line against the real Slurm of scripts/slurm-lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.labs import PYTHON, ROOT, SHELL, SLURM_LAB, Cli, Done, Lab, container, slurm_lab

__all__ = ["PYTHON", "ROOT", "SHELL", "SLURM_LAB", "Cli", "Done", "Lab", "container"]


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The default lab, up."""
    return slurm_lab()


@pytest.fixture
def cli(lab: Lab, tmp_path: Path) -> Iterator[Cli]:
    """The command line; every job a test leaves behind is ended."""
    made = Cli(lab, tmp_path)
    yield made
    for pod in made("status", "--output", "json").json()["pods"]:
        made("delete", pod["uid"], "--grace-period", "0")


@pytest.fixture
def pod(lab: Lab) -> Callable[..., dict[str, Any]]:
    """Makes a pod of shell containers: keyword → script; `spec` adds to the pod's spec."""

    def make(
        spec: dict[str, Any] | None = None,
        name: str = "test",
        namespace: str = "physics",
        gpus: int = 0,
        **scripts: str | dict[str, Any],
    ) -> dict[str, Any]:
        containers = []
        for name_, script in scripts.items():
            given = script if isinstance(script, dict) else {"command": ["sh", "-c", script]}
            limits: dict[str, Any] = {"cpu": "1", "memory": "100Mi"}
            if gpus:
                limits["nvidia.com/gpu"] = gpus
            containers.append(
                {
                    "name": name_.replace("_", "-"),
                    "image": f"{lab.registry}/{SHELL}",
                    "resources": {"limits": limits},
                    **given,
                }
            )
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 3,
                "containers": containers,
                **(spec or {}),
            },
        }

    return make

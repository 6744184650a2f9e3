"""The pod runner on the lab's node, for benchmarks: the real job script as the lab's job user.

A job would only add Slurm's own noise to what is measured, so the script is started without one, as
slurmstepd starts it. What runs on the node is `on_node`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lab import USER, slurm_lab
from slurmrest_adapter.domain.podplan import ContainerPlan, MountPlan, PodPlan, VolumePlan
from slurmrest_adapter.runtimes.apptainer import ApptainerRuntime

_UID = 2001  # alice's
_IMAGE = "lab/busybox:1"


@dataclass
class Bench:
    """A directory of the job user's own in the lab, with the job script and the node's program in it.

    Attributes:
        here: the directory as this host has it.
        there: as the nodes have it; containers have it at /bench.
        registry: the lab's.
    """

    here: Path
    there: str
    registry: str

    def plan(self, *scripts: str, mode: Any = "sandbox") -> dict[str, Any]:
        """A pod of a container for each shell script."""
        containers = tuple(
            ContainerPlan(
                f"c{number}",
                f"docker://{self.registry}/{_IMAGE}",
                command=("/bin/sh", "-c", script),
                mounts=(MountPlan("bench", "/bench"),),
            )
            for number, script in enumerate(scripts)
        )
        runtime = ApptainerRuntime((self.registry,), None, mode).plan_section()
        volumes = (VolumePlan("bench", host_path=self.there),)
        plan = PodPlan("bench", "physics", "bench", "lab", containers, runtime=runtime, volumes=volumes)
        loaded: dict[str, Any] = json.loads(plan.to_json())
        return loaded

    def do(self, task: str, **spec: Any) -> Any:
        """Do a task of `on_node` in the lab; what it printed."""
        text = json.dumps({"base": self.there, "script": f"{self.there}/script", **spec})
        command = ["exec", "--as", USER, "python3", f"{self.there}/on_node.py", task, text]
        try:
            return json.loads(slurm_lab(*command).splitlines()[-1])
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"bench: {task} on the node: {error.stderr}") from error


@contextmanager
def bench() -> Iterator[Bench]:
    """The default lab, up, with a directory for the benchmark, removed at the end."""
    slurm_lab("up")
    settings = dict(word.split("=", 1) for word in shlex.split(slurm_lab("env")))
    here = Path(tempfile.mkdtemp(prefix="bench-", dir=settings["LAB_SHARED"]))
    try:
        (here / "script").write_text(ApptainerRuntime().job_script())
        shutil.copy(Path(__file__).with_name("on_node.py"), here)
        for path in (here, *here.iterdir()):
            os.chown(path, _UID, _UID)
        yield Bench(here, f"/shared/{here.name}", settings["LAB_REGISTRY"])
    finally:
        shutil.rmtree(here)

"""Apptainer on the nodes: what the pod runner must know of the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slurmrest_adapter.runtimes.script import job_script


@dataclass(frozen=True, slots=True)
class ApptainerRuntime:
    """The site's settings for Apptainer (CONTRACT.md: ``images`` and ``podrunner``).

    Attributes:
        insecure_registries: ``host[:port]`` of registries that speak plain http.
        cache: a directory on the nodes for pulled images, below which every user gets an own one;
            None is the node's ``/var/tmp``.
        mode: ``sandbox`` gives the pod namespaces and a /dev of its own, ``plain`` does not,
            ``auto`` takes the first where the node has it.
        python: the interpreter on the nodes, a name or an absolute path.
        runner: where the nodes have the pod runner; None when each job's script carries it.
    """

    insecure_registries: tuple[str, ...] = ()
    cache: str | None = None
    mode: Literal["auto", "sandbox", "plain"] = "auto"
    python: str = "python3"
    runner: str | None = None

    @property
    def name(self) -> str:
        """The runtime's name in the plan."""
        return "apptainer"

    def plan_section(self) -> Mapping[str, object]:
        """The plan's ``runtime`` section."""
        return {
            "name": self.name,
            "insecure_registries": list(self.insecure_registries),
            "cache": self.cache,
            "mode": self.mode,
        }

    def job_script(self) -> str:
        """The constant batch script that carries or starts the pod runner."""
        return job_script(self.python, self.runner)

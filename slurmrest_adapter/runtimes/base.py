"""The protocol of a container runtime, as the sidecar sees it.

The work on the node is the pod runner's; here is only what goes there with the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Runtime(Protocol):
    """One container runtime with the site's settings."""

    @property
    def name(self) -> str:
        """The name in the plan's ``runtime`` section, by which the runner chooses."""
        ...

    def plan_section(self) -> Mapping[str, object]:
        """The plan's ``runtime`` section: JSON values, the same for every pod of the site."""
        ...

    def job_script(self) -> str:
        """The batch script: the same text for every pod of the site."""
        ...

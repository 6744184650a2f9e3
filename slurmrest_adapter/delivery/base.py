"""The face of plan deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from slurmrest_adapter.domain.podplan import PodPlan


class Delivery(Protocol):
    """Brings plans to nodes."""

    def reserve(self) -> str:
        """A new, unguessable name (32 hexadecimal digits) for a pod's directory; makes nothing."""
        ...

    def on_nodes(self, directory: str) -> str:
        """That directory's path as the nodes see it."""
        ...

    def put(self, directory: str, plan: PodPlan, uid: int | None, gid: int | None) -> Mapping[str, str]:
        """Deliver a plan to be read by this user alone; doing it twice is doing it once.

        Another plan replaces one that no runner has claimed yet.

        Returns:
            What the job's environment must carry for it: as secret as the plan.

        Raises:
            ConfigError: nothing can be delivered this way; says why and what to change.
            Unsupported: this plan cannot.
        """
        ...

    def discard(self, directory: str) -> None:
        """Take a plan back that nobody shall run any more; what the runner wrote stays. Idempotent.

        A plan that cannot be taken back is left: this never raises.
        """
        ...

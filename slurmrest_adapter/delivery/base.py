"""The face of plan deliveries."""

from __future__ import annotations

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

    def put(self, directory: str, plan: PodPlan, uid: int | None, gid: int | None) -> None:
        """Deliver a plan to be read by this user alone; doing it twice is doing it once.

        Another plan replaces one that no runner has claimed yet.

        Raises:
            ConfigError: it cannot be delivered this way; says why and what to change.
        """
        ...

    def discard(self, directory: str) -> None:
        """Take a plan back that nobody will read any more; what the runner wrote stays. Idempotent.

        A plan that cannot be removed is left: this never raises.
        """
        ...

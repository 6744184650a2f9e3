"""The face of identity mappers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slurmrest_adapter.domain.pod import PodView


@dataclass(frozen=True, slots=True)
class Owner:
    """The Slurm side of a pod: user, and what the site fixes with it.

    `uid` and `gid` are needed only to hand the pod's directory to the user.
    """

    user: str
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    uid: int | None = None
    gid: int | None = None


class IdentityMapper(Protocol):
    """Decides who runs a pod."""

    def owner(self, pod: PodView) -> Owner:
        """The pod's owner.

        Raises:
            RefusedIdentity: nobody may run it (default deny).
        """
        ...

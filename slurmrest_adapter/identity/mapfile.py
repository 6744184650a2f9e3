"""The identity map of the configuration: the first line that matches wins, no match is a refusal."""

from __future__ import annotations

import fnmatch
import pwd
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurmrest_adapter.domain.errors import RefusedIdentity
from slurmrest_adapter.domain.pod import PodView
from slurmrest_adapter.identity.base import Owner

# They own the machinery; a pod that ran as one of them would own the cluster.
NEVER = frozenset({"root", "slurm"})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the map; namespace and service account may hold shell wildcards."""

    namespace: str
    service_account: str
    owner: Owner


class MapMapper:
    """An `IdentityMapper` over the configuration's lines.

    Args:
        lines: in the file's order.
        min_uid: owners with a smaller uid are refused.
    """

    def __init__(self, lines: Sequence[Line], min_uid: int) -> None:
        self._lines = tuple(lines)
        self._min_uid = min_uid

    def owner(self, pod: PodView) -> Owner:
        """See `IdentityMapper.owner`."""
        namespace, account = pod.namespace, pod.service_account
        for line in self._lines:
            if fnmatch.fnmatchcase(namespace, line.namespace) and fnmatch.fnmatchcase(
                account, line.service_account
            ):
                return self._checked(_with_ids(line.owner))
        raise RefusedIdentity(
            "metadata.namespace",
            f"no line of the site's identity map lets service account {account!r} of namespace "
            f"{namespace!r} run jobs; ask the site's admin for one (identity.map)",
        )

    def _checked(self, owner: Owner) -> Owner:
        if owner.user in NEVER or (owner.uid is not None and owner.uid < self._min_uid):
            raise RefusedIdentity(
                "metadata.namespace",
                f"the identity map names user {owner.user!r}, who may not run pods "
                f"(root and Slurm's own user never may, nor uids below {self._min_uid})",
            )
        return owner


def _with_ids(owner: Owner) -> Owner:
    """Fill in uid and gid from this host's passwd, where the map leaves them out."""
    if owner.uid is not None and owner.gid is not None:
        return owner
    try:
        entry = pwd.getpwnam(owner.user)
    except KeyError:
        return owner
    return replace(
        owner,
        uid=entry.pw_uid if owner.uid is None else owner.uid,
        gid=entry.pw_gid if owner.gid is None else owner.gid,
    )

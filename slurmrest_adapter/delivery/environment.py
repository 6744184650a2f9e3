"""Delivery by the job's own environment: the plan, packed, in pieces that the runner takes out.

No file holds the plan then, but Slurm does: slurmctld until it forgets the job, and slurmdbd for as
long as it keeps jobs where the site has ``AccountingStoreFlags=job_env``. So it is for sites that
choose it by name (docs/configuration.md). The pod's directory is made all the same: status and logs
come back through it.
"""

from __future__ import annotations

import base64
import bz2
import contextlib
import os
from collections.abc import Mapping

from slurmrest_adapter.delivery.directory import CLAIM, PodDirectories, write
from slurmrest_adapter.domain.errors import Unsupported
from slurmrest_adapter.domain.podplan import PodPlan

# The names are the runner's too (podrunner/carried.py).
COUNT, PIECE = "SRA_PLAN_PIECES", "SRA_PLAN_{}"
# Linux takes no single string of 128 KiB, and all of argv and environment together in a quarter of
# the stack's limit: 2 MiB with the usual 8 MiB. The rest is for Slurm's own variables and the script.
PIECE_BYTES = 120_000
LIMIT = 1_900_000
# In the claim's place: no job has this id, so every runner finds the pod taken.
_NOBODY = "no\n"


class EnvironmentDelivery(PodDirectories):
    """A `Delivery` by the job's environment."""

    name = "environment"

    def put(self, directory: str, plan: PodPlan, uid: int | None, gid: int | None) -> Mapping[str, str]:
        """See `Delivery.put`.

        Raises:
            Unsupported: the plan is too large for a process's environment.
        """
        carried = variables(plan)
        self.make(directory, {}, uid, gid, lambda inside: None)
        return carried

    def discard(self, directory: str) -> None:
        """See `Delivery.discard`. The job has its plan, so the pod is claimed: nobody runs it."""
        with contextlib.suppress(OSError), self.opened(directory) as inside:
            owner = os.fstat(inside)
            write(inside, CLAIM, _NOBODY, owner.st_uid, owner.st_gid)


def variables(plan: PodPlan) -> dict[str, str]:
    """What carries a plan: the number of pieces, and the pieces.

    Raises:
        Unsupported: they are more than a process can be started with.
    """
    # base64, because Slurm keeps environments as text in files and, it may be, in SQL.
    text = base64.b64encode(bz2.compress(plan.to_json().encode("ascii"), 9)).decode("ascii")
    if len(text) > LIMIT:
        raise Unsupported(
            "spec",
            f"what its containers are given takes {len(text):,} bytes in the job's environment, which "
            f"carries {LIMIT:,} (plan.delivery: environment): let it mount or set less, or the site "
            "choose plan.delivery: shared",
        )
    pieces = [text[start : start + PIECE_BYTES] for start in range(0, len(text), PIECE_BYTES)]
    return {COUNT: str(len(pieces))} | {PIECE.format(at): piece for at, piece in enumerate(pieces)}

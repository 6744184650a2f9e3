"""What the driver works with, each through its protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurmrest_adapter.delivery.base import Delivery
from slurmrest_adapter.identity.base import IdentityMapper
from slurmrest_adapter.slurm.base import SlurmGateway
from slurmrest_adapter.store.base import EventStore, Store
from slurmrest_adapter.translate.site import Site

# Slurm's MessageTimeout is 10 s by default; a request may still be on its way until then.
LOOK_FOR_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Deps:
    """The driver's surroundings.

    Attributes:
        script: the job script, the same for every pod.
        key: signs and checks identities on jobs.
        shared_root: shared_dir as this host sees it.
        look_for: seconds after a submit without an answer for which its job is looked for before it
            is submitted again; longer than the site's MessageTimeout.
        events: SPANK events; None where the site has no plugin.
        clock, sleep: POSIX seconds and waiting; replaced where time must be made up.
    """

    gateway: SlurmGateway
    store: Store
    delivery: Delivery
    mapper: IdentityMapper
    site: Site
    script: str
    key: bytes
    shared_root: Path
    look_for: float = LOOK_FOR_SECONDS
    events: EventStore | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

"""The driver on fakes: a made-up clock, a small Slurm, a real store, a real shared directory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmrest_adapter.delivery.shared import SharedDelivery
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.identity.mapfile import Line, MapMapper
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.translate.site import Site
from tests.fakes.clock import FakeClock
from tests.fakes.slurm import FakeGateway


class World:
    """What a driver test works with."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.slurm = FakeGateway(self.clock)
        self.shared = directory / "shared"
        self.shared.mkdir(mode=0o711, parents=True)
        # The plan must become the user's own; without root that is whoever runs the tests.
        uid, gid = (1001, 1001) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        self.uid = uid
        self.state = directory / "state"
        self.state.mkdir(parents=True)
        owner = Owner("alice", "physics", uid=uid, gid=gid)
        self.deps = Deps(
            gateway=self.slurm,
            store=SqliteStore(self.state / "pods.sqlite3", self.clock),
            delivery=SharedDelivery(self.shared, None),
            mapper=MapMapper([Line("physics", "*", owner)], min_uid=0),
            site=Site("lab"),
            script="#!/bin/sh\n",
            key=b"k" * 32,
            shared_root=self.shared,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def restart(self) -> None:
        """The sidecar was killed and comes back: nothing but its files is left."""
        self.deps = replace(self.deps, store=SqliteStore(self.state / "pods.sqlite3", self.clock))

    def runner_writes(
        self, record: PodRecord, seq: int, end: dict[str, Any] | None, *containers: Any
    ) -> None:
        """What the pod runner would put into its status file."""
        path = self.shared / record.directory / "status.json"
        job = {"id": str(record.job_id), "node": "n1", "restart": record.restart_count, "gpus": []}
        status = {
            "schema": 1,
            "uid": record.uid,
            "seq": seq,
            "job": job,
            "end": end,
            "containers": containers,
        }
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(status))
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid)


def container_record(name: str = "main", state: str = "terminated", code: int | None = 0) -> dict[str, Any]:
    """A container's record, as far as these tests look at it."""
    return {
        "name": name, "init": False, "state": state, "reason": "Completed" if code == 0 else "Error",
        "message": "", "exit_code": code if state == "terminated" else None, "signal": None,
        "started_at": 1_700_000_001.0, "finished_at": None, "image": "busybox", "image_id": None,
        "restart_count": 0, "gpus": [],
    }  # fmt: skip

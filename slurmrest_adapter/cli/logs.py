"""``slurmrest-adapter logs``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.cli.options import NoSuchPod, one_pod, pod_argument
from slurmrest_adapter.logs import runs
from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.sources.runner import read_status
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower


@click.command()
@pod_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the container has ended.")
@click.option("--tail", type=click.IntRange(min=-1), help="Only the last lines of what is there; -1 is all.")
@click.option("-c", "--container", help="Which container; needed where the pod has several.")
@click.option("-p", "--previous", is_flag=True, help="The run before the last restart.")
@click.option("--timestamps", is_flag=True, help="Begin each line with the time it was written.")
@click.pass_obj
def logs(
    config: Path | None,
    pod: str,
    follow: bool,
    tail: int | None,
    container: str | None,
    previous: bool,
    timestamps: bool,
) -> None:
    """Print what a container's last run has written, standard output and error in the order they came.

    POD is a UID, a job id or [namespace/]name.

    \b
    Example: slurmrest-adapter logs physics/train -c main --tail 20 -f
    """
    guarded("table", lambda: _logs(build(config), pod, follow, tail, container, previous, timestamps))


def _logs(
    deps: Deps,
    word: str,
    follow: bool,
    tail: int | None,
    container: str | None,
    previous: bool,
    timestamps: bool,
) -> None:
    record = one_pod(deps.store, word)
    name = _container(record, container)
    owner = record.spec.get("uid")
    # Slurm need not be asked, nor be there, for what the runner itself has written.
    runner = read_status(deps.shared_root, record.directory, owner, record.uid) or record.runner
    run = (runs.previous if previous else runs.newest)(runner, name)
    if run < 0:
        raise NoSuchPod(f"container {name} of pod {record.namespace}/{record.name} has no earlier run")
    log = ContainerLog(deps.shared_root, record.directory, name, owner, run)
    lines = None if tail is None or tail < 0 else tail
    batches = log.batches(_ended(deps, record, name, run) if follow else lambda: True, lines)
    out = sys.stdout.buffer
    fresh = True
    for batch in batches:
        for piece in batch:
            if timestamps and fresh:
                out.write(piece.time.encode() + b" ")
            out.write(piece.content)
            fresh = piece.full
        out.flush()


def _container(record: PodRecord, wanted: str | None) -> str:
    """The container meant; the app container where there is just one.

    Raises:
        NoSuchPod: no such container, or a choice is needed.
    """
    names = [str(c["name"]) for c in record.skeleton["containers"]]
    if wanted is not None:
        if wanted not in names:
            raise NoSuchPod(
                f"pod {record.namespace}/{record.name} has no container {wanted!r}: {', '.join(names)}"
            )
        return wanted
    apps = [str(c["name"]) for c in record.skeleton["containers"] if not c["init"]]
    if len(apps) > 1:
        raise NoSuchPod(
            f"pod {record.namespace}/{record.name} has several containers, say which: -c {'|'.join(apps)}"
        )
    return apps[0]


class _ended:
    """Says whether a container has ended; asks at most twice a second."""

    def __init__(self, deps: Deps, record: PodRecord, container: str, run: int) -> None:
        self._deps = deps
        self._follower = Follower(deps, record.uid)
        self._container = container
        self._run = run
        self._asked = 0.0
        self._ended = False

    def __call__(self) -> bool:
        if not self._ended and self._deps.clock() - self._asked >= 0.5:
            self._asked = self._deps.clock()
            seen = self._follower.look()
            both = (*seen.status.init_containers, *seen.status.containers)
            told = next(one for one in both if one["name"] == self._container)
            over = seen.standing.ended or seen.status.phase in ("Succeeded", "Failed")
            self._ended = over or runs.is_over(told, self._run)
        return self._ended

"""``slurmrest-adapter status``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click

from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.cli.options import one_pod, output_option
from slurmrest_adapter.config import load
from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower, Seen


@click.command()
@click.argument("pod", metavar="[POD]", required=False)
@click.option("--all", "everything", is_flag=True, help="Also the pods that have ended.")
@output_option
@click.pass_obj
def status(config: Path | None, pod: str | None, everything: bool, output: str) -> None:
    """Show where pods are: phase, job, node, GPUs, containers, usage.

    POD is a UID, a job id or [namespace/]name; without it, every pod that has not ended.

    \b
    Example: slurmrest-adapter status physics/train
             slurmrest-adapter status 4711 --output json
    """
    guarded(
        output,
        lambda: _one(build(config), pod, output) if pod is not None else _all(config, everything, output),
    )


def _one(deps: Deps, word: str, output: str) -> None:
    record = one_pod(deps.store, word)
    seen = Follower(deps, record.uid).look()
    story = deps.store.story(record.uid)
    if output == "json":
        show.json_document(documents.pod(seen, story))
    else:
        show.pod(seen, story)


def _all(config: Path | None, everything: bool, output: str) -> None:
    deps = build(config)
    one_asker = load(config).slurm.service_user is not None
    listed = _look(deps, deps.store.pods(ended=everything), one_asker)
    if output == "json":
        show.json_document(documents.pods(listed))
    elif listed:
        show.pods(listed)
    else:
        click.echo("no pods" if everything else "no pods that have not ended; --all shows the others")


def _look(deps: Deps, records: Sequence[PodRecord], one_asker: bool) -> list[Seen]:
    """Look at all with one question: one for each user, where only users may ask for their jobs."""
    seen: dict[str, Seen] = {}
    asked: dict[str, list[tuple[Follower, PodRecord, int]]] = defaultdict(list)
    for record in records:
        follower = Follower(deps, record.uid)
        job_id = follower.question()
        if job_id is None:
            seen[record.uid] = follower.take(None)
        else:
            asked["" if one_asker else record.user].append((follower, record, job_id))
    for group in asked.values():
        try:
            answer = deps.gateway.states([job_id for _, _, job_id in group], group[0][1].user)
            seen |= {record.uid: follower.take(answer) for follower, record, _ in group}
        except SlurmError as error:
            seen |= {record.uid: follower.take(error) for follower, record, _ in group}
    return [seen[record.uid] for record in records]

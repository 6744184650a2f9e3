"""``slurmrest-adapter delete``."""

from __future__ import annotations

from pathlib import Path

import click

from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.cli.options import one_pod, output_option, pod_argument
from slurmrest_adapter.tracking.driver.delete import delete as end_pod
from slurmrest_adapter.tracking.driver.deps import Deps


@click.command()
@pod_argument
@click.option(
    "--grace-period",
    type=click.IntRange(min=0),
    help="Seconds between TERM and the end; 0 cancels at once [the pod's own, 30 by default].",
)
@output_option
@click.pass_obj
def delete(config: Path | None, pod: str, grace_period: int | None, output: str) -> None:
    """End a pod: TERM, its grace period, then cancel. A queued one is cancelled at once.

    POD is a UID, a job id or [namespace/]name. Deleting a pod that has ended changes nothing.

    \b
    Example: slurmrest-adapter delete physics/train --grace-period 5
    """
    guarded(output, lambda: _delete(build(config), pod, grace_period, output))


def _delete(deps: Deps, word: str, grace: int | None, output: str) -> None:
    record = one_pod(deps.store, word)
    if record.deleting is None and not record.usage and record.job_id is not None:
        click.echo(f"ending pod {record.namespace}/{record.name} (Slurm job {record.job_id}) …", err=True)
    seen = end_pod(deps, record, grace)
    if output == "json":
        show.json_document(documents.pod(seen, deps.store.story(record.uid)))
    elif seen.standing.ended or seen.record.job_id is None:
        click.echo(f"pod {record.namespace}/{record.name} has ended: {seen.status.message}")
    else:
        click.echo(f"pod {record.namespace}/{record.name} is still ending: {seen.status.message}")

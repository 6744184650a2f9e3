"""``slurmrest-adapter status``."""

from __future__ import annotations

from pathlib import Path

import click

from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.cli.options import one_pod, output_option
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower


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
    guarded(output, lambda: _status(build(config), pod, everything, output))


def _status(deps: Deps, word: str | None, everything: bool, output: str) -> None:
    if word is not None:
        record = one_pod(deps.store, word)
        seen = Follower(deps, record.uid).look()
        story = deps.store.story(record.uid)
        if output == "json":
            show.json_document(documents.pod(seen, story))
        else:
            show.pod(seen, story)
        return
    listed = [Follower(deps, record.uid).look() for record in deps.store.pods(ended=everything)]
    if output == "json":
        show.json_document(documents.pods(listed))
    elif listed:
        show.pods(listed)
    else:
        click.echo("no pods" if everything else "no pods that have not ended; --all shows the others")

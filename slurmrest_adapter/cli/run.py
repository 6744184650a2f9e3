"""``slurmrest-adapter run``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from slurmrest_adapter.cli import documents, manifest, show
from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import INTERRUPTED, OURS, guarded, nobody_reads
from slurmrest_adapter.cli.options import output_option
from slurmrest_adapter.cli.streams import Streams
from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.domain.volumes import Objects
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower, Seen
from slurmrest_adapter.tracking.driver.submit import give_up, submit

# The first seconds are when something happens; a job that queues for hours is asked less often.
_QUICK_SECONDS = 20.0
_QUICK, _SLOW = 0.25, 2.0


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--detach", is_flag=True, help="Submit, print the pod and return.")
@output_option
@click.pass_obj
def run(config: Path | None, file: str, detach: bool, output: str) -> None:
    """Run the pod in FILE (YAML or JSON, '-' is standard input) and follow it to its end.

    FILE holds one Pod, and any ConfigMaps and Secrets that it refers to. Exits with the
    code of the first container that failed; 125 is an error of our own. Interrupting leaves the
    pod running.

    \b
    Example: slurmrest-adapter run pod.yaml
             slurmrest-adapter run --detach --output json - < pod.yaml
    """
    # No look at slurmrestd before the file is known to be good.
    given = guarded(output, lambda: manifest.read(file))
    pod = guarded(output, lambda: manifest.pod_of(given))
    deps = guarded(output, lambda: build(config))
    known = guarded(output, lambda: view(pod))
    where = f"pod {known.namespace}/{known.name} (uid {known.uid})"
    # Said before: whoever interrupts must know the name of what may be running.
    _say(f"{where}: submitting")
    try:
        record = guarded(output, lambda: _submit(deps, pod, Objects(given.config_maps, given.secrets)))
    except KeyboardInterrupt:
        _say(f"{where} may have been submitted; slurmrest-adapter status|delete {known.uid}")
        sys.exit(INTERRUPTED)
    _say(f"{where}: Slurm job {record.job_id} as {record.user}")
    for note in (*record.warnings, *record.skeleton.get("notes", ())):
        _say(f"note: {note}")
    follower = Follower(deps, record.uid)
    if detach:
        _show(deps, guarded(output, follower.look), output)
        return
    try:
        seen = guarded(output, lambda: _follow(deps, follower, output))
    except KeyboardInterrupt:
        _say(f"left running; slurmrest-adapter delete {record.uid} ends it")
        sys.exit(INTERRUPTED)
    _show(deps, seen, output)
    code = seen.status.exit_code
    sys.exit(OURS if code is None else code)


def _submit(deps: Deps, pod: dict[str, Any], objects: Objects) -> PodRecord:
    try:
        # Somebody waits: an image that cannot be had ends the pod instead of being tried again.
        return submit(replace(deps, site=replace(deps.site, image_retries=False)), pod, objects)
    except Unavailable as error:
        give_up(deps, str(pod["metadata"]["uid"]), str(error))
        raise


def _follow(deps: Deps, follower: Follower, output: str) -> Seen:
    """Until the end is written: progress to standard error, the containers' logs to standard output."""
    begun = deps.clock()
    told = ""
    seen = follower.look()
    streams = Streams(deps, seen.record, to_stderr=output == "json")
    try:
        while True:
            now = _progress(seen)
            if now != told:
                _say(now)
                told = now
            if seen.closed:
                return seen
            quick = deps.clock() - begun < _QUICK_SECONDS or seen.standing.ended
            deps.sleep(_QUICK if quick else _SLOW)
            seen = follower.look()
    finally:
        streams.finish()
        if streams.broken:
            nobody_reads()


def _progress(seen: Seen) -> str:
    """What is so now, in one line; a new line is printed when it changes."""
    status = seen.status
    # The notes at the message's end were said when it was submitted.
    notes = "".join(f"; {note}" for note in seen.record.skeleton.get("notes", ()))
    return f"{status.phase}: {status.message.removesuffix(notes)}"


def _show(deps: Deps, seen: Seen, output: str) -> None:
    try:
        if output == "json":
            show.json_document(documents.pod(seen, deps.store.story(seen.record.uid)))
        else:
            show.pod(seen)
    except (BrokenPipeError, SystemExit):  # the table's printer answers a broken pipe by exiting with 1
        nobody_reads()


def _say(text: str) -> None:
    click.echo(text, err=True)

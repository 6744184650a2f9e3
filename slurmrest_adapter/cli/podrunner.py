"""``slurmrest-adapter podrunner``: the pod runner as a file, for sites that install it on their nodes."""

from __future__ import annotations

import click


@click.command()
def podrunner() -> None:
    """Print the pod runner, to be installed on the nodes at podrunner.path.

    Each job's script carries the runner, some 37 kB that slurmctld and slurmdbd keep. Where the nodes have
    it, the script is short. It belongs to this release: install it anew with each update, before `serve` is
    restarted; a job that finds another one does not start and says so. Only root may be able to write
    there.

    \b
    Example: slurmrest-adapter podrunner > /opt/slurmrest-adapter/podrunner     on all nodes, or shared
             podrunner: {path: /opt/slurmrest-adapter/podrunner}               in the configuration
    """
    from slurmrest_adapter.runtimes.script import packed

    click.echo(packed())

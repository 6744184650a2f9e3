"""The console script ``slurmrest-adapter``."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from slurmrest_adapter import __version__
from slurmrest_adapter.cli.delete import delete
from slurmrest_adapter.cli.errors import INTERRUPTED, OURS
from slurmrest_adapter.cli.logs import logs
from slurmrest_adapter.cli.run import run
from slurmrest_adapter.cli.serve import serve
from slurmrest_adapter.cli.status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file [$SLURMREST_CONFIG, else /etc/slurmrest-adapter/config.yaml].",
)
@click.version_option(__version__, prog_name="slurmrest-adapter")
@click.pass_context
def cli(context: click.Context, config: Path | None) -> None:
    """Run Kubernetes pods as Slurm jobs, through slurmrestd alone.

    \b
    slurmrest-adapter run pod.yaml           submit, follow, exit with the pod's code
    slurmrest-adapter status physics/train   where it is, why it waits, what it used
    slurmrest-adapter logs -f physics/train  what it prints
    slurmrest-adapter delete physics/train   TERM, its grace period, then the end

    Our own errors exit 125.
    """
    context.obj = config


for command in (run, status, logs, delete, serve):
    cli.add_command(command)


def main() -> None:
    """Run the command line; wrong usage exits 125 too, never with a code a pod could have."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(OURS)
    except Exception:  # noqa: BLE001  a fault of ours must not look like a pod's exit code 1
        traceback.print_exc()
        sys.exit(OURS)
    sys.exit(code if isinstance(code, int) else 0)

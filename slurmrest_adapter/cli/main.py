"""The console script ``slurmrest-adapter``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from slurmrest_adapter import __version__
from slurmrest_adapter.cli.codes import INTERRUPTED, OURS

# Each is the click command of the same name in the module of the same name below
# slurmrest_adapter.cli, which is loaded when the command is called: `logs` needs no web server.
COMMANDS = ("run", "status", "logs", "delete", "serve", "doctor", "spank", "podrunner")


class _Lazy(click.Group):
    """A group whose commands are loaded when they are called, in the order of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"slurmrest_adapter.cli.{cmd_name}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, which would end with 1, as a pod may, when nobody reads standard output."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from slurmrest_adapter.cli import errors

            errors.nobody_reads()
            sys.exit(errors.NOBODY_READS)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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
    slurmrest-adapter doctor                 what is wrong with the site, and what to do

    Our own errors exit 125.
    """
    context.obj = config


def main() -> None:
    """Run the command line; wrong usage exits 125 too, never with a code a pod could have."""
    from slurmrest_adapter.cli import errors  # which loads what `--help` can do without

    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(OURS)
    except Exception as error:  # noqa: BLE001  a fault of ours must not look like a pod's exit code 1
        errors.fault(error)
    sys.exit(code if isinstance(code, int) else 0)

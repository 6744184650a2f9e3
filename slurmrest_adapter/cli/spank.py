"""``slurmrest-adapter spank``: the plugin's sources, how to install it, whether events arrive, spools."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

import slurmrest_adapter
from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.doctor import rows, table
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.cli.options import output_option
from slurmrest_adapter.config import Settings, Spank, load
from slurmrest_adapter.doctor import spank as checks
from slurmrest_adapter.doctor.verdict import Verdict, overall
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.sources import spool
from slurmrest_adapter.sources.spankpost import post
from slurmrest_adapter.tracking.driver.events import Outcome

CHECK = "slurmrest-adapter/spank-check/v1"
DRAIN = "slurmrest-adapter/spank-drain/v1"
NODES_KEY = "/etc/slurm/sra-spank.key"
_PROGRESS_SECONDS = 1.0
_SHOWN = 20


@click.group()
def spank() -> None:
    """The SPANK plugin: nodes tell at once that jobs start and end. See docs/spank.md.

    \b
    Example: slurmrest-adapter spank hint       what to run, once for each site
             slurmrest-adapter spank check      do events arrive?
             slurmrest-adapter spank drain DIR  deliver what a node could not
    """


@spank.command()
def source() -> None:
    """Print where the plugin's C sources are.

    \b
    Example: make -C "$(slurmrest-adapter spank source)" BUILD=/tmp/sra-spank
    """
    click.echo(guarded("table", _sources))


def _sources() -> Path:
    found = Path(slurmrest_adapter.__file__).parent / "spank"
    if not (found / "Makefile").is_file():
        raise ConfigError(f"{found} does not hold the plugin's sources: this installation is incomplete")
    return found


@spank.command()
@click.pass_obj
def hint(config: Path | None) -> None:
    """Print what to run on the site, with the configuration's own values.

    \b
    Example: slurmrest-adapter spank hint
    """
    click.echo(guarded("table", lambda: _hint(load(config), _sources())), nl=False)


def _hint(settings: Settings, sources: Path) -> str:
    given = settings.spank
    events = given.events or "http://ADDRESS-OF-THIS-HOST:8322/spank/v1/events"
    key = given.key_file or Path(NODES_KEY)
    return f"""\
# 1. Build against the headers of the site's own Slurm release (libslurm-dev); install on each node.
make -C {sources} BUILD=/tmp/sra-spank
make -C {sources} BUILD=/tmp/sra-spank PLUGIN_DIR=/usr/lib/slurm install

# 2. Make a key, once; the same on each node, root's alone, and on this host, root's or serve's user's, as
#    {key}
(umask 077; head -c 48 /dev/urandom | base64 -w 0 > {NODES_KEY})

# 3. In /etc/slurm/plugstack.conf on each node, one line; then restart slurmd (a reconfigure is not enough).
#    The host in events= is an address or in the nodes' /etc/hosts; report=all adds every other job.
optional /usr/lib/slurm/slurmrest_adapter.so cluster={settings.cluster} events={events} \
key_file={NODES_KEY} spool=/var/spool/slurmrest-adapter

# 4. In slurm.conf: the prolog, and its event, when the job gets its nodes and not at its first step.
PrologFlags=Alloc

# 5. In this configuration; then restart serve, and look.
spank:
  enabled: true
  events: {events}
  key_file: {key}

slurmrest-adapter spank check
"""


@spank.command()
@output_option
@click.pass_obj
def check(config: Path | None, output: str) -> None:
    """Is all as it must be, and do events arrive? Run it where `serve` runs, as the same user.

    Posts a signed event of no job, which changes nothing but a counter. Exits 1 when something
    failed, else 0.

    \b
    Example: slurmrest-adapter spank check
             slurmrest-adapter spank check --output json
    """
    settings = guarded(output, lambda: load(config))
    found, counted = guarded(output, lambda: _check(settings))
    if output == "json":
        document = {
            "schema": CHECK,
            "verdict": overall(found).value,
            "checks": rows(found),
            "counters": counted,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        table(found)
        told = ", ".join(f"{count} {name}" for name, count in counted.items() if count)
        click.echo(f"counted so far: {told or 'nothing'}")
    sys.exit(1 if overall(found) is Verdict.FAIL else 0)


def _check(settings: Settings) -> tuple[list[Any], dict[str, int]]:
    found = checks.of_site(settings, try_event=True)
    if not settings.spank.enabled:
        return found, {}
    kept = checks.stores(settings)
    counted = dict(kept.events.counters()) if kept.events is not None else {}
    names = (*map(str, Outcome), "crowded", "looks")
    return [*found, *checks.nodes(kept)], {name: counted.get(name, 0) for name in names}


@spank.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", metavar="URL", help="Deliver there, and read no configuration [spank.events].")
@output_option
@click.pass_obj
def drain(config: Path | None, directory: Path, to: str | None, output: str) -> None:
    """Deliver the plugin's spool DIR, oldest first; what is not taken stays.

    Nothing is lost when this is interrupted: a file goes only after its event was taken, and an event
    that comes twice counts once. Exits 0 when nothing is left, 1 when something is.

    \b
    Example: slurmrest-adapter spank drain /var/spool/slurmrest-adapter
             slurmrest-adapter spank drain --to http://10.0.0.5:8322/spank/v1/events DIR
    """
    address = guarded(output, lambda: _address(config, to))
    progress = _Progress()
    done = guarded(
        output,
        lambda: spool.drain(
            directory, lambda body, signature: post(address, body, signature), time.sleep, progress
        ),
    )
    if output == "json":
        show.json_document(documents.drained(DRAIN, directory, address, done))
    else:
        _say(done)
    sys.exit(1 if done.kept else 0)


def _address(config: Path | None, to: str | None) -> str:
    if to is None:
        address = load(config).spank.events
    else:
        try:
            address = Spank(events=to).events
        except ValueError:
            raise ConfigError(f"--to {to!r} is neither http://HOST:PORT/PATH nor unix:///PATH") from None
    if address is None:
        raise ConfigError("spank.events: is not configured; name the address with --to")
    return address


class _Progress:
    """Says on standard error how far it is, once a second."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def __call__(self, done: spool.Drained) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            click.echo(f"{done.delivered} delivered, {len(done.refused)} kept", err=True)


def _say(done: spool.Drained) -> None:
    for name, why in list(done.refused.items())[:_SHOWN]:
        click.echo(f"kept {name}: {why}", err=True)
    if len(done.refused) > _SHOWN:
        click.echo(f"and {len(done.refused) - _SHOWN} more", err=True)
    if done.stopped:
        click.echo(f"stopped, {done.left} not tried: {done.stopped}", err=True)
    lost = f"; the plugin had no room for {done.dropped}" if done.dropped else ""
    click.echo(f"{done.delivered} delivered, {done.kept} kept{lost}")

"""``slurmrest-adapter doctor``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from slurmrest_adapter.cli import build, show
from slurmrest_adapter.cli.options import output_option
from slurmrest_adapter.doctor.examine import Examination
from slurmrest_adapter.doctor.verdict import Check, Verdict, overall

DOCTOR = "slurmrest-adapter/doctor/v1"
_WORDS = {
    Verdict.OK: ("✓ ok", "green"),
    Verdict.WARN: ("! warn", "yellow"),
    Verdict.FAIL: ("✗ FAIL", "bold red"),
    Verdict.SKIP: ("- skip", "dim"),
}


@click.command()
@click.option("--no-jobs", is_flag=True, help="Submit nothing: what only a node can tell is skipped.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds that the tiny jobs may take; then they are cancelled.",
)
@output_option
@click.pass_obj
def doctor(config: Path | None, no_jobs: bool, timeout: float, output: str) -> None:
    """Look at everything that pods need, say what is wrong and what to do about it.

    Reads the configuration, asks every slurmrestd, and submits one tiny job to each configured
    partition, which looks at its node for a few seconds. Changes nothing and prints no secret.
    Exits 0 when nothing failed, else 1.

    \b
    Example: slurmrest-adapter doctor
             slurmrest-adapter doctor --no-jobs --output json
    """
    examination = Examination(
        config,
        # By its module, so that the one place that makes gateways is asked.
        lambda settings: build.gateway_of(settings),
        run_jobs=not no_jobs,
        timeout=timeout,
        say=lambda text: click.echo(text, err=True),
    )
    checks = examination.run()
    cluster = examination.settings.cluster if examination.settings else None
    if output == "json":
        # Escaped: what daemons and nodes say may be no text of this terminal's.
        click.echo(json.dumps(document(checks, cluster, examination.api_version), indent=2))
    else:
        table(checks)
    sys.exit(1 if overall(checks) is Verdict.FAIL else 0)


def document(checks: Sequence[Check], cluster: str | None, api_version: str | None) -> dict[str, Any]:
    """The document of ``--output json``; docs/json.md describes it."""
    counts = Counter(check.verdict for check in checks)
    return {
        "schema": DOCTOR,
        "verdict": overall(checks).value,
        "cluster": cluster,
        "apiVersion": api_version,
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "checks": rows(checks),
    }


def rows(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks, as documents have them."""
    return [
        {
            "check": check.name,
            "subject": check.subject or None,
            "verdict": check.verdict.value,
            "seen": check.seen,
            "advice": check.advice or None,
        }
        for check in checks
    ]


def table(checks: Sequence[Check]) -> None:
    """The checks for people, and their sum."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("VERDICT", no_wrap=True)
    table.add_column("CHECK", no_wrap=True)
    table.add_column("OF", overflow="fold", max_width=32)
    table.add_column("SEEN, AND WHAT TO DO", overflow="fold")
    for check in checks:
        words, style = _WORDS[check.verdict]
        seen = Text(check.seen)
        if check.advice:
            seen.append(f"\n→ {check.advice}", style="bold")
        table.add_row(Text(words, style=style), check.name, Text(check.subject or "-"), seen)
    out = show.console()
    out.print(table)
    counts = Counter(check.verdict for check in checks)
    told = {
        Verdict.OK: "ok",
        Verdict.WARN: "to look at",
        Verdict.FAIL: "failed",
        Verdict.SKIP: "skipped",
    }
    out.print(", ".join(f"{counts[v]} {words}" for v, words in told.items() if counts[v]), markup=False)

"""The command line of scripts/fidelity-score."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from .rows import TESTS, Row, Score, by_group, held, read_junit, read_rows, read_scope, scores

_WORDS = {
    "scope": "in scope (tests/fidelity/scope.txt)",
    "must": "of the conformance list: must",
    "kubelet": "of the conformance list: all that a kubelet decides",
    "beyond": "of its neighbours (N rows): must",
}


@click.command()
@click.option(
    "--junit", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A result to count."
)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-n", "processes", default=4, show_default=True, help="Test processes.")
def main(junit: Path | None, output: str, processes: int) -> None:
    """Count the rows of Kubernetes' conformance list that hold; exit code 1 if one in scope does not."""
    rows, scope = read_rows(), read_scope()
    try:
        results = read_junit(junit) if junit else _run(processes)
    except (ET.ParseError, OSError) as error:
        raise click.ClickException(f"no result to count: {error}") from error
    holding = held(results)
    missing = [row for row in rows if row.id in scope and row.id not in holding]
    if output == "json":
        click.echo(json.dumps(_document(rows, scope, holding, missing), indent=1))
    else:
        _show(rows, scope, holding, missing)
    sys.exit(1 if missing else 0)


def _run(processes: int) -> list[tuple[str, bool]]:
    """Run the suite; its words go to standard error."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "fidelity and not soak", str(TESTS)]
        parallel = ["-n", str(processes), "--dist", "worksteal", f"--junitxml={result}"]
        subprocess.run([*command, *parallel], stdout=sys.stderr, check=False)
        return read_junit(result)


def _document(rows: list[Row], scope: list[str], holding: set[str], missing: list[Row]) -> dict[str, object]:
    def both(score: Score) -> dict[str, int]:
        return {"held": score.holding, "of": score.of}

    return {
        **{name: both(score) for name, score in scores(rows, scope, holding).items()},
        "groups": [
            {"group": group, "scope": both(ours), "kubelet": both(every)}
            for group, ours, every in by_group(rows, scope, holding)
        ],
        "missing": [{"id": row.id, "behaviour": row.behaviour} for row in missing],
        "held": [row.id for row in rows if row.id in holding],
    }


def _show(rows: list[Row], scope: list[str], holding: set[str], missing: list[Row]) -> None:
    table = Table("group", box=box.SIMPLE_HEAD)
    table.add_column("in scope", justify="right")
    table.add_column("all", justify="right")
    for group, ours, every in by_group(rows, scope, holding):
        table.add_row(group, f"{ours.holding}/{ours.of}" if ours.of else "-", f"{every.holding}/{every.of}")
    console = Console(width=100, highlight=False)
    console.print(table)
    for name, score in scores(rows, scope, holding).items():
        console.print(f"{score.holding:4} of {score.of:3} rows {_WORDS[name]}", markup=False)
    for row in missing:
        console.print(f"does not hold: {row.id}  {row.behaviour}", markup=False, soft_wrap=True)


main()

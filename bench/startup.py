"""Importing the command line, beside the libraries that any such program imports."""

from __future__ import annotations

import subprocess
import sys

from bench.rounds import Verdict, ratios

CONTROL = "import click, yaml, requests"
CLI = "import slurmrest_adapter.cli.main"
# What a user's command loads; `serve` loads a web server besides.
COMMANDS = "from slurmrest_adapter.cli import main, run, status, logs, delete"
ROUNDS = 15
MOST = 3.0


def run() -> list[Verdict]:
    """The verdicts; no lab is needed."""
    found = []
    for what, program in (("the command line", CLI), ("its run, status, logs and delete", COMMANDS)):
        each = ratios(lambda program=program: python(program), lambda: python(CONTROL), ROUNDS)  # type: ignore[misc]
        found.append(Verdict(f"importing {what} / {CONTROL!r}", each, most=MOST))
    return found


def python(program: str) -> None:
    """A fresh interpreter, as a user's shell starts it."""
    subprocess.run([sys.executable, "-c", program], check=True)

"""Errors as one line and exit code 125, so that `run`'s other codes are always the pod's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.codes import INTERRUPTED, OURS
from slurmrest_adapter.domain.errors import AdapterError, PodError

__all__ = ["INTERRUPTED", "OURS", "fail", "guarded"]


def fail(message: str, field: str | None = None, output: str = "table") -> NoReturn:
    """Say why on standard error (and as a document, where JSON was asked for), exit 125."""
    click.echo(f"slurmrest-adapter: {message}", err=True)
    if output == "json":
        show.json_document(documents.error(message, field))
    sys.exit(OURS)


def guarded(output: str, work: Callable[[], Any]) -> Any:
    """Run a command's work with our errors turned into one line and exit code 125."""
    try:
        return work()
    except PodError as error:
        fail(" ".join(str(error).split()), error.field, output)
    except AdapterError as error:
        fail(" ".join(str(error).split()), None, output)

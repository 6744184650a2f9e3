"""Errors as one line and exit code 125, so that `run`'s other codes are always the pod's own."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import click

from slurmrest_adapter.cli import documents, show
from slurmrest_adapter.cli.codes import INTERRUPTED, OURS
from slurmrest_adapter.domain.errors import AdapterError, PodError

__all__ = ["DEBUG", "INTERRUPTED", "NOBODY_READS", "OURS", "fail", "fault", "guarded", "nobody_reads"]

# Not in the name space of the configuration's keys, which admits nothing but keys.
DEBUG = "SLURMRESTADAPTER_DEBUG"
# As a shell names the end by SIGPIPE.
NOBODY_READS = 141
_CLICKS_OWN = (click.ClickException, click.exceptions.Abort, click.exceptions.Exit)


def fail(message: str, field: str | None = None, output: str = "table") -> NoReturn:
    """Say why on standard error (and as a document, where JSON was asked for), exit 125."""
    click.echo(f"slurmrest-adapter: {message}", err=True)
    if output == "json":
        show.json_document(documents.error(message, field))
    sys.exit(OURS)


def fault(error: Exception, output: str = "table") -> NoReturn:
    """Say what nobody thought of in one line, exit 125; ``SLURMRESTADAPTER_DEBUG=1`` shows where it was."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    words = " ".join(str(error).split())
    fail(f"a fault of ours: {type(error).__name__}: {words} ({DEBUG}=1 shows where)", None, output)


def nobody_reads() -> None:
    """The reader of standard output has gone: what is still to be printed goes nowhere, quietly."""
    with contextlib.suppress(OSError, ValueError):  # a standard output without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def guarded(output: str, work: Callable[[], Any]) -> Any:
    """Run a command's work with errors turned into one line and exit code 125."""
    try:
        return work()
    except PodError as error:
        fail(" ".join(str(error).split()), error.field, output)
    except AdapterError as error:
        fail(" ".join(str(error).split()), None, output)
    except (BrokenPipeError, *_CLICKS_OWN):
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it must not look like a pod's exit code 1
        fault(error, output)

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from slurmrest_adapter.domain.errors import AdapterError
from slurmrest_adapter.store.base import PodRecord, Store

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

output_option: Decorator = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json prints one document, described in docs/json.md.",
)
pod_argument: Decorator = click.argument("pod", metavar="POD")


class NoSuchPod(AdapterError):
    """No pod, or several, by that word."""


def one_pod(store: Store, word: str) -> PodRecord:
    """The pod that a UID, a job id or ``[namespace/]name`` names.

    A name may have been used again and again; then the newest pod of that name is meant, as long
    as only one namespace has it.

    Raises:
        NoSuchPod: none, or the same name in several namespaces.
    """
    found = store.find(word)
    if not found:
        raise NoSuchPod(f"no pod {word!r} is known here; a UID, a job id or [namespace/]name is needed")
    exact = [record for record in found if record.uid == word or str(record.job_id) == word]
    namespaces = sorted({record.namespace for record in found})
    if not exact and len(namespaces) > 1:
        raise NoSuchPod(f"{word!r} is a pod's name in several namespaces: {', '.join(namespaces)}; say which")
    return (exact or found)[0]

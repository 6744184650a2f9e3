"""GRES strings as Slurm writes them for a job's nodes: ``gpu:a100:2(IDX:0-1)``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_INDEXED = re.compile(
    r"(?P<name>[\w/]+)(?::(?P<type>[\w.+-]+))?:(?P<count>\d+)\(IDX:(?P<indices>[\d,N/A-]+)\)"
)

_SOCKETS = re.compile(r"\([^)]*\)")


def indices(text: str) -> tuple[int, ...]:
    """The numbers of an index list, ``0-1,3`` → (0, 1, 3); empty for ``N/A``."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit():
            continue
        found.extend(range(int(first), int(last if dash and last.isdigit() else first) + 1))
    return tuple(found)


def gpu_indices(details: Iterable[str], name: str = "gpu") -> tuple[int, ...]:
    """Indices of a job's GPUs on its (one) node, from ``gres_detail``.

    The field is filled while the job runs and empty after its end, so whoever wants to keep the
    indices has to read them in time.
    """
    found: list[int] = []
    for detail in details:
        for match in _INDEXED.finditer(detail):
            if match["name"].removeprefix("gres/") == name:
                found.extend(indices(match["indices"]))
    return tuple(sorted(found))


def gpus_held(details: Iterable[str], name: str = "gpu") -> int:
    """How many GPUs a job holds, from ``gres_detail``; see `gpu_indices` for when that is filled."""
    return sum(
        int(match["count"])
        for detail in details
        for match in _INDEXED.finditer(detail)
        if match["name"].removeprefix("gres/") == name
    )


def devices(gres: str, name: str) -> int:
    """How many of a GRES a node has: ``gpu`` counts every type, ``gpu:a100`` that one.

    Args:
        gres: the node's GRES (``gpu:a100:4(S:0-1),gpu:l40s:2``). Not its TRES: those hold a GRES only
            where the site accounts it.
    """
    found = 0
    for entry in _SOCKETS.sub("", gres).split(","):
        *words, count = entry.split(":")
        kind = ":".join(words)
        if count.isdigit() and (kind == name or kind.startswith(f"{name}:")):
            found += int(count)
    return found

"""Rows for people."""

from __future__ import annotations


def columns(heads: str, rows: object, keys: str) -> list[str]:
    """Return lines of a table: space-separated heads, and those keys of each row; - for None and ''."""
    assert isinstance(rows, list)
    cells = [heads.split()] + [
        ["-" if row[k] in (None, "") else str(row[k]) for k in keys.split()] for row in rows
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]

"""The rows of Kubernetes' conformance list, those in scope, and which of them hold.

A row holds when tests that are named by its id ran and every one of them passed; a skipped test
proves nothing.
"""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests" / "fidelity"
_ID = re.compile(r"(?<![A-Za-z0-9])(R\d{3}|N\d{2})(?![A-Za-z0-9])")
KUBELETS = ("must", "should", "no")  # the rest, "api", the API server decides alone


@dataclass(frozen=True, slots=True)
class Row:
    """One row of rows.csv; `verdict` is must, should, no or api."""

    id: str
    group: str
    behaviour: str
    upstream_test: str
    verdict: str

    @property
    def conformance(self) -> bool:
        """Whether Kubernetes' conformance suite has it, and not only its other tests."""
        return self.id.startswith("R")


def read_rows(path: Path = TESTS / "rows.csv") -> list[Row]:
    """All rows, in their order."""
    names = Row.__dataclass_fields__
    with path.open(encoding="utf-8", newline="") as stream:
        return [Row(**{name: line[name] for name in names}) for line in csv.DictReader(stream)]


def read_scope(path: Path = TESTS / "scope.txt") -> list[str]:
    """The ids in scope, in their order."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def ids_in(name: str) -> list[str]:
    """The row ids that a test's name has: ``test_R003[Always]``, ``test_file[R113]``."""
    return _ID.findall(name.replace("_", " "))


def held(results: Iterable[tuple[str, bool]]) -> set[str]:
    """The ids that hold, from the names of tests and whether they passed."""
    found: dict[str, bool] = {}
    for name, passed in results:
        for row in ids_in(name):
            found[row] = found.get(row, True) and passed
    return {row for row, holds in found.items() if holds}


def read_junit(path: Path) -> list[tuple[str, bool]]:
    """Names and results of a ``pytest --junitxml`` file.

    Raises:
        ET.ParseError: it is no XML.
        OSError: it cannot be read.
    """
    cases = ET.parse(path).getroot().iter("testcase")
    bad = ("failure", "error", "skipped")
    return [(case.get("name") or "", all(case.find(tag) is None for tag in bad)) for case in cases]


@dataclass(frozen=True, slots=True)
class Score:
    """How many hold, of how many."""

    holding: int
    of: int


def count(rows: Iterable[Row], holding: set[str]) -> Score:
    """How many of these rows hold."""
    ids = [row.id for row in rows]
    return Score(sum(one in holding for one in ids), len(ids))


def scores(rows: list[Row], scope: list[str], holding: set[str]) -> Mapping[str, Score]:
    """The lines of the summary: of the scope, of all that must hold, of all that a kubelet decides."""
    conformance = [row for row in rows if row.conformance and row.verdict in KUBELETS]
    return {
        "scope": count((row for row in rows if row.id in scope), holding),
        "must": count((row for row in conformance if row.verdict == "must"), holding),
        "kubelet": count(conformance, holding),
        "beyond": count((r for r in rows if r.id.startswith("N") and r.verdict == "must"), holding),
    }


def by_group(rows: list[Row], scope: list[str], holding: set[str]) -> list[tuple[str, Score, Score]]:
    """Each group with rows that a kubelet decides: of its rows in scope, of all of them."""
    ours = [row for row in rows if row.verdict in KUBELETS and row.id[0] in "RN"]
    groups = {row.group: [r for r in ours if r.group == row.group] for row in ours}
    return [
        (group, count((r for r in some if r.id in scope), holding), count(some, holding))
        for group, some in groups.items()
    ]

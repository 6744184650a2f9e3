"""Each planted bug turns its rows red and no row of another group (minutes each: `--soak`).

For each bug every row in scope runs. The suite runs from the copy, and so do both daemons and the
runner that they send, since the copy comes first on Python's path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts.fidelity.rows import held, ids_in, read_junit, read_rows, read_scope
from tests.fidelity.planted import BUGS, Bug
from tests.labs import ROOT

pytestmark = pytest.mark.soak

GROUPS = {row.id: row.group for row in read_rows()}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_seen_by_its_rows_alone(bug: Bug, tmp_path: Path) -> None:
    copy, result = tmp_path / "copy", tmp_path / "result.xml"
    copy.mkdir()
    bug.copy(ROOT, copy)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    wanted = set(read_scope())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "fidelity and not soak", "-p", "no:cacheprovider"),
            *("-n", "2", "--dist", "worksteal", f"--junitxml={result}"),
            "tests/fidelity",
        ],
        cwd=copy,
        env={**environment, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    # An error is no verdict on a row: the labs or the daemons did not come up.
    errors = [
        case.get("name")
        for case in ET.parse(result).getroot().iter("testcase")
        if case.find("error") is not None
    ]
    assert not errors, f"{errors}\n{done.stdout[-6000:]}"
    results = read_junit(result)
    seen = {row for name, _ in results for row in ids_in(name)}
    assert seen == wanted
    red = wanted - held(results)
    assert bug.rows <= red, f"not seen by {sorted(bug.rows - red)}; red: {sorted(red)}"
    elsewhere = {row for row in red if GROUPS[row] not in {GROUPS[one] for one in bug.rows}}
    assert not elsewhere, f"also seen by {sorted(elsewhere)}\n{done.stdout[-6000:]}"

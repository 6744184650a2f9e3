"""The planted bugs can still be planted; whether the rows see them is a long test (test_planted.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.fidelity.rows import read_rows, read_scope
from tests.fidelity.planted import BUGS, Bug

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_its_line_is_there_once(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    planted = bug.in_text(text)
    changed = [
        (old, new) for old, new in zip(text.splitlines(), planted.splitlines(), strict=True) if old != new
    ]
    assert len(changed) == 1
    compile(planted, bug.file, "exec")
    assert bug.rows


def test_they_are_spread_over_the_groups() -> None:
    groups, scope = {row.id: row.group for row in read_rows()}, set(read_scope())
    assert len({bug.name for bug in BUGS}) == len({(bug.file, bug.old) for bug in BUGS}) == len(BUGS) >= 10
    found = {groups[row] for bug in BUGS for row in bug.rows}
    assert len(found) >= 10, found
    assert {row for bug in BUGS for row in bug.rows} <= scope


def test_nothing_but_the_copy_is_changed(tmp_path: Path) -> None:
    bug = BUGS[0]
    for part in ("slurmrest_adapter/podrunner", "vk_provider", "generated_client", "scripts", "tests"):
        (tmp_path / "tree" / part).mkdir(parents=True)
    (tmp_path / "tree" / "pyproject.toml").touch()
    source = tmp_path / "tree" / bug.file
    source.write_text(f"    {bug.old}\n")
    (tmp_path / "copy").mkdir()
    bug.copy(tmp_path / "tree", tmp_path / "copy")
    assert source.read_text() == f"    {bug.old}\n"
    assert (tmp_path / "copy" / bug.file).read_text() == f"    {bug.new}\n"

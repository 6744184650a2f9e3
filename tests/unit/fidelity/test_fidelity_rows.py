"""The list of rows, the scope and the tests agree; and the score counts right."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.fidelity import rows
from scripts.fidelity.rows import Score

ROOT = Path(__file__).parents[3]
# rows.csv is Kubernetes' list in our words; a verdict is not changed because a test fails.
ROWS_SHA256 = "a6e759226a43d44863bf98db59f2e9adcab9b1a0afed23842df94b0ddea07aee"
WHOLE_GROUPS = {
    "Container lifecycle & exit",
    "Args / command / entrypoint",
    "Environment",
    "Downward API through env",
    "Downward API volume",
    "Init containers & restart policy",
    "ConfigMap volumes",
    "Secret volumes",
    "Projected volumes",
    "emptyDir",
    "subPath",
    "Termination message",
    "Sidecars",
    "hostPath",
}
SINGLE_ROWS = {"R134", "R135", "R136", "R145", "R151", "R170", "R176"}


def collected() -> list[str]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"),
            *("-m", "not soak", str(rows.TESTS)),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("::", 1)[1] for line in done.stdout.splitlines() if "::" in line]


def test_the_list_is_as_it_was_given() -> None:
    assert hashlib.sha256((rows.TESTS / "rows.csv").read_bytes()).hexdigest() == ROWS_SHA256
    known = rows.read_rows()
    assert len({row.id for row in known}) == len(known) == 256
    conformance = [row.verdict for row in known if row.conformance]
    numbers = {verdict: conformance.count(verdict) for verdict in ("must", "should", "no", "api")}
    assert numbers == {"must": 131, "should": 42, "no": 7, "api": 29}


def test_the_scope_is_every_row_that_must_hold_of_its_groups() -> None:
    scope = rows.read_scope()
    wanted = [
        row.id
        for row in rows.read_rows()
        if row.verdict == "must" and (row.group in WHOLE_GROUPS or row.id in SINGLE_ROWS)
    ]
    assert len(scope) == len(set(scope)) == 116
    assert set(scope) == set(wanted)


def test_the_tests_are_the_rows_in_scope() -> None:
    named = {name: rows.ids_in(name) for name in collected()}
    assert [name for name, found in named.items() if len(found) != 1] == []
    assert {found[0] for found in named.values()} == set(rows.read_scope())


def test_ids_in_names() -> None:
    for name in (
        "test_R003",
        "test_R003_always",
        "test_R003[Always]",
        "test_files[R003]",
        "test[x-R003-0o644]",
    ):
        assert rows.ids_in(name) == ["R003"], name
    assert rows.ids_in("test_N19") == ["N19"]
    assert rows.ids_in("test_XR003 R00 R0031 N1 ERR12") == []


def test_a_row_holds_when_all_of_its_tests_passed(tmp_path: Path) -> None:
    junit = tmp_path / "result.xml"
    junit.write_text(
        "<testsuites><testsuite><testcase name='test_R001'/>"
        "<testcase name='test_R003[a]'/><testcase name='test_R003[b]'><failure/></testcase>"
        "<testcase name='test_R004'><skipped/></testcase><testcase name='test_R005'><error/></testcase>"
        "</testsuite></testsuites>"
    )
    holding = rows.held(rows.read_junit(junit))
    assert holding == {"R001"}
    found = rows.scores(rows.read_rows(), ["R001", "R003"], holding)
    assert found["scope"] == Score(1, 2)
    assert (found["must"], found["kubelet"]) == (Score(1, 131), Score(1, 180))
    lifecycle = rows.by_group(rows.read_rows(), ["R001", "R003"], holding)[0]
    assert lifecycle == ("Container lifecycle & exit", Score(1, 2), Score(1, 3))


@pytest.mark.parametrize("all_hold", [True, False])
def test_the_command_fails_when_a_row_in_scope_does(tmp_path: Path, all_hold: bool) -> None:
    ids = rows.read_scope() if all_hold else rows.read_scope()[1:]
    junit = tmp_path / "result.xml"
    junit.write_text("<s>" + "".join(f"<testcase name='test_{one}'/>" for one in ids) + "</s>")
    command = [sys.executable, "-m", "scripts.fidelity", "--junit", str(junit)]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, cwd=ROOT)
    document = json.loads(done.stdout)
    assert document["scope"] == {"held": len(ids), "of": 116}
    assert [one["id"] for one in document["missing"]] == ([] if all_hold else [rows.read_scope()[0]])
    assert done.returncode == (0 if all_hold else 1)
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == done.returncode
    assert f"{len(ids):4} of 116 rows in scope" in shown.stdout
    assert ("does not hold: " in shown.stdout) == (not all_hold)

"""Every state word means something, and what nobody has heard of is no state at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.states import (
    BASE,
    COMES_BACK,
    HOLD_REASONS,
    HOLDS,
    KNOWN,
    NEUTRAL,
    NOT_OVER,
    TERMINAL,
    Kind,
    Standing,
    classify,
)

SPECS = sorted((Path(__file__).parents[3] / "openapi").glob("*/*.json"))
# As real daemons list them, base words and flags.
BASE_WORDS = [
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
]
FLAGS = [
    "LAUNCH_FAILED",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "CONFIGURING",
    "COMPLETING",
    "STOPPED",
    "RECONFIG_FAIL",
    "POWER_UP_NODE",
    "REVOKED",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "SIGNALING",
    "STAGE_OUT",
    "EXPEDITING",
]
# Another cluster of a federation has the job; this one cannot say how it fares.
ELSEWHERE = {"REVOKED"}


def words_of_specs() -> list[str]:
    """Every word of a job_state enum in every committed spec."""
    found: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if "SUSPENDED" in node.get("enum", ()):
                found.update(node["enum"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    for spec in SPECS:
        walk(json.loads(spec.read_text()))
    return sorted(found)


def test_there_are_specs_to_read() -> None:
    assert len(words_of_specs()) > 20


@pytest.mark.parametrize("word", words_of_specs() + FLAGS + BASE_WORDS)
def test_every_word_is_known(word: str) -> None:
    assert word in KNOWN or word in ELSEWHERE
    states = [word] if word in BASE else ["RUNNING", word]
    assert (classify(states).kind is Kind.UNKNOWN) == (word in ELSEWHERE)


@pytest.mark.parametrize(
    ("words", "kind", "outcome"),
    [
        ("PENDING", Kind.QUEUED, ""),
        ("RUNNING", Kind.RUNNING, ""),
        ("SUSPENDED", Kind.RUNNING, ""),
        ("RUNNING CONFIGURING", Kind.STARTING, ""),
        ("RUNNING POWER_UP_NODE", Kind.STARTING, ""),
        ("RUNNING COMPLETING", Kind.FINISHING, ""),
        ("RUNNING STAGE_OUT", Kind.FINISHING, ""),
        ("RUNNING SIGNALING", Kind.RUNNING, ""),
        ("COMPLETED COMPLETING", Kind.FINISHING, ""),
        ("FAILED COMPLETING", Kind.FINISHING, ""),
        ("CANCELLED STAGE_OUT", Kind.FINISHING, ""),
        # A requeue: a terminal word for a moment, but no end.
        ("PENDING COMPLETING", Kind.QUEUED, ""),
        ("CANCELLED REQUEUED", Kind.QUEUED, ""),
        ("COMPLETED REQUEUED COMPLETING", Kind.QUEUED, ""),
        ("NODE_FAIL REQUEUED", Kind.QUEUED, ""),
        ("FAILED REQUEUE_FED", Kind.QUEUED, ""),
        ("FAILED REQUEUE_HOLD", Kind.HELD, ""),
        ("FAILED SPECIAL_EXIT", Kind.HELD, ""),
        ("PENDING REQUEUE_HOLD", Kind.HELD, ""),
        ("PENDING SPECIAL_EXIT", Kind.HELD, ""),
        ("PENDING RESV_DEL_HOLD", Kind.HELD, ""),
        ("COMPLETED", Kind.DONE, "COMPLETED"),
        ("COMPLETED LAUNCH_FAILED", Kind.DONE, "LAUNCH_FAILED"),
        ("CANCELLED LAUNCH_FAILED", Kind.DONE, "LAUNCH_FAILED"),
        ("COMPLETED RESIZING", Kind.DONE, "COMPLETED"),
    ],
)
def test_sets_of_words(words: str, kind: Kind, outcome: str) -> None:
    for order in (words.split(), words.split()[::-1]):
        seen = classify(order)
        assert (seen.kind, seen.outcome) == (kind, outcome)
        assert seen.ended == (kind is Kind.DONE)


@pytest.mark.parametrize("word", sorted(TERMINAL))
def test_each_end_keeps_its_word(word: str) -> None:
    assert classify([word]) == Standing(Kind.DONE, word, word)


@pytest.mark.parametrize("reason", sorted(HOLD_REASONS))
def test_a_held_job_is_told_by_its_reason(reason: str) -> None:
    assert classify(["PENDING"], reason).kind is Kind.HELD
    assert classify(["RUNNING"], reason).kind is Kind.RUNNING


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["COMPLETING"],
        ["ON_FIRE"],
        ["RUNNING", "ON_FIRE"],
        ["COMPLETED", "ON_FIRE"],
        ["RUNNING", "PENDING"],
        ["running"],
        ["COMPLETE"],
        ["COMPLETED "],
        ["CANCELLED by 0"],
        ["FAIL"],
        ["NODE_FAILED"],
        ["TIMEOUT+COMPLETING"],
        ["R"],
        [""],
    ],
)
def test_the_unheard_of_is_unknown_never_matched_by_prefix(words: list[str]) -> None:
    seen = classify(words)
    assert seen.kind is Kind.UNKNOWN
    assert not seen.ended
    assert seen.outcome == ""


def test_the_words_are_kept_for_people() -> None:
    assert classify(["COMPLETED", "COMPLETING"]).words == "COMPLETED+COMPLETING"
    assert classify(["ON_FIRE"]).words == "ON_FIRE"


@given(st.lists(st.sampled_from([*sorted(KNOWN), "REVOKED", "ON_FIRE"]), max_size=5), st.text(max_size=10))
def test_the_order_does_not_count_and_only_a_clean_end_is_an_end(words: list[str], reason: str) -> None:
    seen = classify(words, reason)
    other = classify(words[::-1], reason)
    assert (seen.kind, seen.outcome) == (other.kind, other.outcome)
    if seen.ended:
        assert set(words) & TERMINAL
        assert not set(words) & (COMES_BACK | NOT_OVER | {"ON_FIRE", "REVOKED"})


def test_the_tables_do_not_overlap() -> None:
    assert not BASE & (COMES_BACK | NOT_OVER | NEUTRAL)
    assert HOLDS < COMES_BACK

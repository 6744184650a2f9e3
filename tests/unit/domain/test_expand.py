"""The kubelet's expansion, against a second, slow reading of its rule."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.expand import env, literal, text

pytestmark = pytest.mark.unit

KNOWN = {"A": "1", "B": "$(A)", "EMPTY": "", "": "nameless", "x y": "spaced"}
# Dense in what matters, so that most examples hold a reference.
tricky = st.text(st.sampled_from("$$$(()AB x\n"), max_size=30)


def slowly(words: str, known: Mapping[str, str]) -> str:
    """The rule character by character."""
    out, at = "", 0
    while at < len(words):
        if words[at] != "$" or at + 1 == len(words):
            out, at = out + words[at], at + 1
        elif words[at + 1] == "$":
            out, at = out + "$", at + 2
        elif words[at + 1] == "(" and ")" in words[at:]:
            end = words.index(")", at)
            name = words[at + 2 : end]
            out, at = out + known.get(name, f"$({name})"), end + 1
        else:
            out, at = out + words[at : at + 2], at + 2
    return out


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("$(A)", "1"),
        ("a$(A)b$(A)", "a1b1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(EMPTY)", ""),
        ("$()", "nameless"),
        ("$(B)", "$(A)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$($(A))", "$($(A))"),
        ("$(A\n)", "$(A\n)"),
        ("`id` $(id)", "`id` $(id)"),
        ("", ""),
    ],
)
def test_expands(written: str, expected: str) -> None:
    assert text(written, KNOWN) == expected
    assert slowly(written, KNOWN) == expected


@given(tricky)
def test_follows_the_rule(written: str) -> None:
    assert text(written, KNOWN) == slowly(written, KNOWN)


@given(st.text())
def test_text_without_dollar_stays(written: str) -> None:
    plain = written.replace("$", "")
    assert text(plain, KNOWN) == plain


@given(st.one_of(tricky, st.text()))
def test_a_literal_comes_back_as_it_was(value: str) -> None:
    assert text(literal(value), KNOWN) == value


def test_variables_see_those_before_them() -> None:
    pairs = [("A", "1"), ("B", "$(A)$(C)"), ("C", "$(B)"), ("A", "$(A)2"), ("D", "$(A)")]
    assert env(pairs) == (("A", "1"), ("B", "1$(C)"), ("C", "1$(C)"), ("A", "12"), ("D", "12"))


@given(st.lists(st.tuples(st.sampled_from("AB"), tricky), max_size=5))
def test_env_keeps_names_and_order(pairs: list[tuple[str, str]]) -> None:
    assert [name for name, _ in env(pairs)] == [name for name, _ in pairs]

"""The form of the field table: what is said about each field of a pod.

A field's row gives its verdict. Where the verdict depends on the value, cases come first: the
first case that fits decides. A value that says nothing (``null``, and ``false``, ``""``, ``[]``,
``{}`` where no case speaks of them) is never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What happens to a field that is set."""

    DONE = "done"
    NO_EFFECT = "without effect here"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Case:
    """One value, or kind of value, and what is said about it.

    Attributes:
        value: the value the case is about.
        verdict, why: as in `Row`.
        note: tell the pod's author that the field was seen and what became of it.
    """

    value: object
    verdict: Verdict
    why: str
    note: bool = False

    def fits(self, value: object) -> bool:
        """Is the case about this value? ``true`` is not 1 here."""
        return type(value) is type(self.value) and value == self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One field.

    Attributes:
        shape: str, int, bool, list or map.
        verdict: for every value that no case speaks of.
        why: what is done; why there is no effect; why it is refused.
        cases: values with a verdict of their own.
        kind: the table that the value, or each item of the list, is held against in turn.
        default: the value that Kubernetes takes when the field is absent, where it matters.
        note: tell the pod's author that the field was seen and what became of it.
        identity: the site's ``identity.run_as_user`` decides.
        words: makes the reason from the value; `why` is then the general form.
    """

    shape: str
    verdict: Verdict
    why: str
    cases: tuple[Case, ...] = ()
    kind: str = ""
    default: object = None
    note: bool = False
    identity: bool = False
    words: Callable[[Any], str] | None = None


Table = Mapping[str, Row]


def done(shape: str, why: str, *cases: Case, kind: str = "") -> Row:
    """A field that is carried."""
    return Row(shape, Verdict.DONE, why, cases, kind)


def no_effect(shape: str, why: str, *cases: Case, note: bool = False, identity: bool = False) -> Row:
    """A field that changes nothing of what the pod means here."""
    return Row(shape, Verdict.NO_EFFECT, why, cases, note=note, identity=identity)


def refused(
    shape: str,
    why: str,
    *cases: Case,
    default: object = None,
    words: Callable[[Any], str] | None = None,
) -> Row:
    """A field that would change what the pod means, and cannot be carried."""
    return Row(shape, Verdict.REFUSED, why, cases, default=default, words=words)


def is_done(value: object, why: str, note: bool = False) -> Case:
    """A value that is carried."""
    return Case(value, Verdict.DONE, why, note)


def is_idle(value: object, why: str, note: bool = False) -> Case:
    """A value without effect."""
    return Case(value, Verdict.NO_EFFECT, why, note)


def is_refused(value: object, why: str) -> Case:
    """A value that is refused."""
    return Case(value, Verdict.REFUSED, why)

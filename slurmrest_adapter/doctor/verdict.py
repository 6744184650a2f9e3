"""What a check gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"  # pods run, but not as well as they could, or not as safely
    FAIL = "fail"  # pods do not run, or not as their users
    SKIP = "skip"  # could not be looked at, or does not concern this site


@dataclass(frozen=True, slots=True)
class Check:
    """One verdict.

    Attributes:
        name: one of the stable words of docs/doctor.md.
        subject: which one of several it is about: an endpoint, a partition, a user; empty for none.
        verdict: how it came out.
        seen: what was seen, one line without anything secret.
        advice: what to do; never empty for a failure.
    """

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    subject: str = ""


Report = Callable[[Check], None]


def ok(name: str, seen: str, subject: str = "") -> Check:
    """All is well."""
    return Check(name, Verdict.OK, _line(seen), "", subject)


def warn(name: str, seen: str, advice: str, subject: str = "") -> Check:
    """Pods run, but something should be looked at."""
    return Check(name, Verdict.WARN, _line(seen), _line(advice), subject)


def fail(name: str, seen: str, advice: str, subject: str = "") -> Check:
    """Pods will not run, or not safely."""
    return Check(name, Verdict.FAIL, _line(seen), _line(advice), subject)


def skip(name: str, why: str, subject: str = "") -> Check:
    """Not looked at, and why."""
    return Check(name, Verdict.SKIP, _line(why), "", subject)


def overall(checks: Iterable[Check]) -> Verdict:
    """The worst of all: fail, warn, else ok."""
    found = {check.verdict for check in checks}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)


def _line(text: str) -> str:
    # Daemons, nodes and users have their words in here: none of them may write to the terminal.
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))

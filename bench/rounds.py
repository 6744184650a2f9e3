"""Interleaved rounds: the product and its control by turns, so that a busy machine slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One measured ratio and its bound.

    Attributes:
        what: the product and its control, in words.
        ratios: one of each round.
        least, most: the bounds of the median; None for one that is only printed.
    """

    what: str
    ratios: Sequence[float]
    least: float | None = None
    most: float | None = None

    @property
    def median(self) -> float:
        """The median ratio."""
        return statistics.median(self.ratios)

    @property
    def passed(self) -> bool:
        """Is it within its bounds?"""
        return (self.least is None or self.median >= self.least) and (
            self.most is None or self.median <= self.most
        )

    def line(self) -> str:
        """For people."""
        bound = f", at least {self.least:g}" if self.least is not None else ""
        bound += f", at most {self.most:.3g}" if self.most is not None else ""
        word = "" if not bound else ("  ok" if self.passed else "  FAILED")
        spread = f"{min(self.ratios):.3g} to {max(self.ratios):.3g} in {len(self.ratios)} rounds"
        return f"{self.what}: median ratio {self.median:.3g} ({spread}{bound}){word}"


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratios(subject: Callable[[], object], control: Callable[[], object], rounds: int) -> list[float]:
    """The subject's time over the control's, for each round; who goes first changes each round."""
    found = []
    subject()  # what is done only once is not measured
    control()
    for number in range(rounds):
        if number % 2:
            first = seconds(control)
            found.append(seconds(subject) / first)
        else:
            first = seconds(subject)
            found.append(first / seconds(control))
    return found

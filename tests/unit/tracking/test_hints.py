"""When pods are looked at for an event: soon, together, not too often, and not for ever."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.tracking.driver.hints import AGAIN_SECONDS, DISTANCE_SECONDS, GATHER_SECONDS, Hints


def test_events_of_one_moment_are_one_look() -> None:
    hints = Hints()
    for number in range(50):
        hints.add(f"p{number % 10}", False, 100 + number / 1000)
    assert hints.due(100.01) == {}
    assert hints.due(100.06) == {f"p{number}": False for number in range(10)}
    assert hints.due(100.07) == {}


def test_an_end_outweighs_a_start() -> None:
    hints = Hints()
    hints.add("p", False, 100)
    hints.add("p", True, 100)
    hints.add("p", False, 100)
    assert hints.due(101) == {"p": True}
    hints.settled("p", False)  # that it runs says nothing of its end
    assert hints.next() is not None
    hints.settled("p", True)
    assert hints.next() is None


def test_a_look_that_came_too_early_is_repeated_less_and_less_often_and_then_left_to_the_poll() -> None:
    hints = Hints()
    hints.add("p", True, 0.0)
    looks = []
    while (when := hints.next()) is not None:
        if hints.due(when):
            looks.append(when)
    assert len(looks) == 1 + len(AGAIN_SECONDS)
    gaps = [round(b - a, 6) for a, b in itertools.pairwise(looks)]
    assert gaps == list(AGAIN_SECONDS)


def test_what_was_seen_is_not_asked_again() -> None:
    hints = Hints()
    hints.add("p", False, 0.0)
    hints.due(1.0)
    hints.settled("p", False)
    hints.settled("q", True)
    assert hints.next() is None
    assert hints.due(100.0) == {}


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=60)
)
def test_however_many_events_come_looks_keep_their_distance(
    arrivals: list[tuple[float, str, bool, bool]],
) -> None:
    hints = Hints()
    now, looks = 0.0, []
    for pause, uid, ended, settles in arrivals:
        hints.add(uid, ended, now)
        until = now + pause
        while (when := hints.next()) is not None and when <= until:
            now = max(now, when)
            found = hints.due(now)
            assert found  # `next` never wakes anybody for nothing
            looks.append(now)
            if settles:
                hints.settled(uid, True)
        now = until
    assert all(b - a >= DISTANCE_SECONDS - 1e-9 for a, b in itertools.pairwise(looks))


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_news_is_never_looked_at_later_than_the_distance(kinds: list[bool]) -> None:
    hints = Hints()
    now = 0.0
    for ended in kinds:
        hints.add("p", ended, now)
        when = hints.next()
        assert when is not None
        assert when <= now + max(GATHER_SECONDS, DISTANCE_SECONDS) + 1e-9
        assert hints.due(when) == {"p": ended}
        hints.settled("p", True)
        now = when

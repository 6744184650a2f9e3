"""Quantities against Kubernetes' own reading of them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.quantities import (
    MIB,
    cpus_ceil,
    duration,
    mib_ceil,
    parse,
    parse_amount,
    parse_count,
)

pytestmark = pytest.mark.unit

SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


# The client computes with decimals of 28 digits; these stay within what it can hold exactly.
@given(
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 999_999),
    st.sampled_from(["", ".", ".5", ".25", ".000"]),
    st.sampled_from([*SUFFIXES, "e3", "E3", "e-2", "E+1", "e0"]),
)
def test_reads_as_the_kubernetes_client_does(sign: str, whole: int, rest: str, suffix: str) -> None:
    text = f"{sign}{whole}{rest}{suffix}"
    assert parse(text, "f") == Fraction(parse_quantity(text))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("500m", Fraction(1, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1E", Fraction(10**18)),
        ("1Ei", Fraction(2**60)),
        ("1E3", Fraction(1000)),
        (".5", Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        (3, Fraction(3)),
        (1e3, Fraction(1000)),
        (1e-9, Fraction(1, 10**9)),
        ("0.1Gi", Fraction(2**30, 10)),
    ],
)
def test_is_exact(value: object, expected: Fraction) -> None:
    assert parse(value, "f") == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "1K",
        "1ki",
        "1mi",
        "Gi",
        ".",
        "1e",
        "1.2.3",
        "--1",
        "1GB",
        "0x10",
        "1_000",
        "²",
        "1e65",
        "1e999999999",
        "9" * 65,
        "nan",
        float("nan"),
        float("inf"),
        10**70,
        True,
        None,
        [],
        {},
    ],
)
def test_what_is_no_quantity_names_the_field(value: object) -> None:
    with pytest.raises(Invalid) as caught:
        parse(value, "spec.containers[0].resources.limits[cpu]")
    assert caught.value.field == "spec.containers[0].resources.limits[cpu]"
    assert len(str(caught.value)) < 160


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_anything_is_a_number_or_invalid(value: object) -> None:
    try:
        outcome: object = parse(value, "f")
    except Invalid as error:
        outcome = error.field
    assert outcome == "f" or isinstance(outcome, Fraction)


def test_amounts_and_counts() -> None:
    assert parse_amount("0", "f") == 0
    assert parse_count("2", "f") == 2
    assert parse_count("1k", "f") == 1000
    for bad in ("-1", "1500m"):
        with pytest.raises(Invalid):
            parse_count(bad, "f")
    with pytest.raises(Invalid, match="negative"):
        parse_amount("-1m", "f")


@given(st.fractions(min_value=0, max_value=10**6))
def test_cpus_are_the_least_whole_number_that_holds_them(total: Fraction) -> None:
    cpus = cpus_ceil(total)
    assert cpus >= 1
    assert cpus >= total
    assert cpus == 1 or cpus - 1 < total


@given(st.fractions(min_value=0, max_value=10**15))
def test_mib_are_the_least_whole_number_that_holds_them(total: Fraction) -> None:
    mib = mib_ceil(total)
    assert mib >= 1
    assert mib * MIB >= total
    assert mib == 1 or (mib - 1) * MIB < total


def test_three_thirds_of_a_cpu_are_one_cpu() -> None:
    """Floats would make it 1.0000000000000002 and so two."""
    assert cpus_ceil(parse("100m", "f") * 10) == 1
    assert math.ceil(sum([0.1] * 3) * 10) == 4  # what the floats would do


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("0s", 0), ("0.5s", 1)],
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text, "defaults.time_limit") == seconds


@pytest.mark.parametrize(
    "value", ["", "1", "h", "1d", "-1h", "1h ", "1-02:00:00", 60, None, True, [], "1" * 99]
)
def test_bad_durations_name_the_key(value: object) -> None:
    with pytest.raises(Invalid, match=r"^defaults\.time_limit: "):
        duration(value, "defaults.time_limit")

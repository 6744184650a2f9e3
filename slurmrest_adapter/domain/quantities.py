"""Kubernetes quantities, and the durations of the site's configuration, as exact numbers.

A quantity is ``<sign><digits>[.<digits>]`` with one of three kinds of suffix: powers of ten by
letter (``n u m k M G T P E``), powers of 1024 (``Ki`` … ``Ei``), or an exponent (``e3``, ``E3``).
The rules are those of Kubernetes' ``apimachinery/pkg/api/resource``. Numbers stay fractions until
the pod's sum is known and are rounded up once: rounding each container up would ask Slurm for
CPUs that nobody wants.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction

from slurmrest_adapter.domain.errors import Invalid

MIB = 1024 * 1024

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
# Far above any machine and far below what would make Python count for minutes ("1e999999999").
_MAX_LENGTH = 64
_MAX_EXPONENT = 64

_SECONDS = {"h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[hms])+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([hms])")


def parse(value: object, field: str) -> Fraction:
    """Read a quantity exactly.

    Args:
        value: text as in ``500m``, or the number that YAML made of an unquoted one.
        field: the field's path, for the error.

    Returns:
        The exact value, in the resource's own unit (CPUs, bytes, devices). May be negative.

    Raises:
        Invalid: the value is no quantity.
    """
    if type(value) is str and len(value) <= _MAX_LENGTH:
        found = _exact(value)
        if not isinstance(found, str):
            return found
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Invalid(field, f"must be a quantity such as 500m or 1Gi, not {_kind(value)}")
    if isinstance(value, int) and abs(value) >= 10**_MAX_EXPONENT:
        raise Invalid(field, "the number is out of range")
    # YAML has already turned 0.1 into a binary fraction; its shortest text is what was written.
    text = value if isinstance(value, str) else repr(value)
    found = _exact(text) if len(text) <= _MAX_LENGTH else "is not a quantity such as 500m, 2 or 1Gi"
    if isinstance(found, str):
        raise Invalid(field, f"{_shown(text)} {found}")
    return found


@functools.lru_cache(maxsize=1024)
def _exact(text: str) -> Fraction | str:
    """The number, or what is wrong with the text; the same few texts come again and again."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return "is not a quantity such as 500m, 2 or 1Gi"
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            return "is out of range"
        return number * Fraction(10) ** exponent
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        return number * Fraction(1024) ** _BINARY[suffix]
    return number * Fraction(10) ** _DECIMAL[suffix]


def parse_amount(value: object, field: str) -> Fraction:
    """Like `parse`, for what a container asks: never negative.

    Raises:
        Invalid: the value is no quantity, or is negative.
    """
    amount = parse(value, field)
    if amount < 0:
        raise Invalid(field, f"{_shown(str(value))} is negative")
    return amount


def parse_count(value: object, field: str) -> int:
    """Like `parse`, for devices: a whole number, 0 or more.

    Raises:
        Invalid: the value is no quantity, is negative or has a fraction.
    """
    amount = parse_amount(value, field)
    if amount.denominator != 1:
        raise Invalid(field, f"{_shown(str(value))} is not a whole number")
    return int(amount)


def cpus_ceil(total: Fraction) -> int:
    """Whole CPUs for a pod's sum of CPUs, at least 1."""
    return max(1, math.ceil(total))


def mib_ceil(total: Fraction) -> int:
    """MiB for a pod's sum of bytes, at least 1: to Slurm, 0 is the memory of the whole node."""
    return max(1, math.ceil(total / MIB))


def duration(value: object, field: str) -> int:
    """Read a duration of the site's configuration: ``1h``, ``30m``, ``90s``, ``1h30m``.

    Args:
        value: hours, minutes and seconds as Go writes them; a number without unit is refused,
            because Slurm's own tools read it as minutes and Kubernetes as seconds.
        field: the configuration's key, for the error.

    Returns:
        Whole seconds, rounded up.

    Raises:
        Invalid: the value is no duration.
    """
    if not isinstance(value, str):
        raise Invalid(field, f"must be a duration such as 1h30m or 90s, not {_kind(value)}")
    if len(value) > _MAX_LENGTH or not _DURATION.fullmatch(value):
        raise Invalid(field, f"{_shown(value)} is not a duration such as 1h30m or 90s")
    parts = _DURATION_PART.findall(value)
    return math.ceil(sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0)))


def _kind(value: object) -> str:
    """A value's kind in JSON's words; the value itself may be long, or secret."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "an object")


def _shown(text: str) -> str:
    """The text in quotes, cut to a length that fits one line."""
    return repr(text if len(text) <= 40 else text[:37] + "...")

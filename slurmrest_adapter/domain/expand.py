"""``$(NAME)`` in env values, command and args, as the kubelet expands it.

The rule (kubernetes/third_party/forked/golang/expansion): ``$(NAME)`` becomes the variable's
value; an unknown name stays as written; ``$$`` becomes ``$`` and shields what follows, so that
``$$(NAME)`` ends as the text ``$(NAME)``. Nothing else is special, what was put in is not looked
at again, and no shell is involved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def text(words: str, known: Mapping[str, str]) -> str:
    """Expand one string against the variables that are known."""
    if "$" not in words:
        return words

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else known.get(name, match[0])

    return _REFERENCE.sub(value, words)


def unknown(words: str, known: Mapping[str, str]) -> list[str]:
    """The names that `text` would leave as they are written, in order."""
    names = [match[1] for match in _REFERENCE.finditer(words)]
    return list(dict.fromkeys(name for name in names if name is not None and name not in known))


def env(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Expand variables in order: each sees the final values of those before it.

    A name given twice keeps both pairs; the later one wins, here for what follows and in the
    container.
    """
    known: dict[str, str] = {}
    done: list[tuple[str, str]] = []
    for name, written in pairs:
        known[name] = text(written, known)
        done.append((name, known[name]))
    return tuple(done)


def literal(value: str) -> str:
    """Write a value so that expanding it gives the value back.

    A Secret's ``pa$$word`` or ``$(id)`` is data: the kubelet expands only what the pod's author
    wrote in ``value``, never what a reference brought in.
    """
    return value.replace("$", "$$")

"""What `typing` and `contextlib` would give. The runner stays for days, and they would be 0.75 MB of it."""

import collections
from typing import Any, Type


class suppress:
    """The same as `contextlib.suppress`."""

    def __init__(self, *kinds: Type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Nothing is kept."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        """Whether the exception is one to pass over."""
        return kind is not None and issubclass(kind, self._kinds)


def named(fields: str, *defaults: Any) -> Any:
    """The base of a class of named fields; the last ones have the defaults.

    The job script has this in place of `typing.NamedTuple` (`runtimes/script.py`).
    """
    make: Any = collections.namedtuple
    made = make("Fields", fields)
    made.__new__.__defaults__ = defaults
    return made

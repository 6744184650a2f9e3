"""Which API version is spoken: the configured one, or the highest that both sides have.

A binding is loaded by its name when it is chosen; the others stay unloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from slurmrest_adapter.domain.errors import ConfigError, Incompatible
from slurmrest_adapter.slurm.bindings.base import Binding

_MODULES = {f"v0.0.{number}": f"v0_0_{number}" for number in range(40, 46)}
OURS = tuple(sorted(_MODULES, key=lambda version: int(version.rpartition(".")[2]), reverse=True))
# Asked only to name what slurmrestd has when it has none of ours (23.11 began with v0.0.39).
_PLAUSIBLE = tuple(f"v0.0.{number}" for number in range(39, 52))


def load(version: str) -> Binding:
    """The binding of one API version.

    Raises:
        ConfigError: there is none.
    """
    name = _MODULES.get(version)
    if name is None:
        raise ConfigError(f"slurm.api_version: {version!r} is not auto or one of {', '.join(OURS)}")
    binding: Binding = importlib.import_module(f"slurmrest_adapter.slurm.bindings.{name}").BINDING
    return binding


def choose(configured: str, serves: Callable[[str], bool]) -> Binding:
    """The binding to speak.

    Args:
        configured: ``auto`` or an API version.
        serves: asks slurmrestd whether it serves a version; its errors pass through.
    Raises:
        Incompatible: no version in common; names both lists.
    """
    wanted = OURS if configured == "auto" else (load(configured).version,)
    for version in wanted:
        if serves(version):
            return load(version)
    raise Incompatible(wanted, served(serves, set(_PLAUSIBLE) - set(wanted)))


def served(serves: Callable[[str], bool], versions: Iterable[str] = _PLAUSIBLE) -> tuple[str, ...]:
    """Those of `versions` that slurmrestd serves, in order."""
    return tuple(version for version in sorted(versions) if serves(version))

"""The environment a job starts with, the same in every API version."""

from __future__ import annotations

from collections.abc import Mapping

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.spank import OPTION_PREFIX

_LEAST = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# A token in here would be readable by all that the job starts, and kept by slurmdbd.
_NEVER = frozenset({"SLURM_JWT"})


def environment_list(environment: Mapping[str, str]) -> list[str]:
    """``NAME=value`` entries, sorted; PATH and LANG are added when missing.

    Slurm inherits nothing and refuses an empty list.

    Raises:
        Invalid: a name is empty, holds ``=`` or NUL, or may never be sent; or a value holds NUL.
    """
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or name in _NEVER:
            raise Invalid(f"environment[{name!r}]", "cannot be a variable of the job's environment")
        if "\0" in value:
            raise Invalid(f"environment[{name!r}]", "the value holds a NUL")
    return [f"{name}={value}" for name, value in sorted({**_LEAST, **environment}.items())]


def spank_list(environment: Mapping[str, str]) -> list[str]:
    """The entries that are options of SPANK plugins.

    In the job's environment they reach slurmstepd alone; prolog and epilog see them only in the job
    description's ``spank_environment``, so they are sent both ways.
    """
    return [
        f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith(OPTION_PREFIX)
    ]

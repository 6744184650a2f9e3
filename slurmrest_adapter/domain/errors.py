"""Every error that crosses a room's border.

    AdapterError
    ├── ConfigError                    the site's configuration
    ├── PodError
    │   ├── Invalid(field, reason)     the pod is wrong by Kubernetes' own rules
    │   └── Unsupported(field, reason) the pod is right, but cannot be carried here
    ├── RefusedIdentity                nobody on the Slurm side may run this pod
    └── SlurmError                     slurmrestd, or what stands behind it
        ├── Rejected(number, words)    Slurm looked at it and said no
        │   ├── Denied                 … because of who asks
        │   └── NotFound               … because there is no such thing (or it is hidden)
        ├── Unauthorized               the token is missing, wrong or expired
        ├── Unavailable                could not ask; says nothing about the job
        ├── MaybeAccepted              a submit whose answer was lost: look before doing it again
        └── Incompatible(ours, theirs) no API version in common

Each text is one line that a user can act on. None of them ever holds a token.
"""

from __future__ import annotations

from collections.abc import Sequence


class AdapterError(Exception):
    """Base of every error this project raises on purpose."""


class ConfigError(AdapterError):
    """The configuration cannot be used; the text names the key."""


class PodError(AdapterError):
    """The pod cannot become a job.

    Args:
        field: path of the field, as in ``spec.containers[0].resources.limits[nvidia.com/gpu]``.
        reason: why, in words for the pod's author.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Invalid(PodError):
    """The value is wrong by Kubernetes' own rules."""


class Unsupported(PodError):
    """The value is right, but cannot be carried to Slurm; refusing beats running something else."""


class RefusedIdentity(PodError):
    """No line of the identity map lets this pod run as anybody (default deny)."""


class SlurmError(AdapterError):
    """slurmrestd, or what stands behind it, did not do what was asked."""


class Rejected(SlurmError):
    """Slurm looked at the request and refused it.

    Args:
        number: Slurm's error number (2000 invalid partition, 2072 invalid GRES …), 0 if it gave none.
        words: Slurm's own description.
    """

    def __init__(self, number: int, words: str) -> None:
        super().__init__(f"Slurm refused: {words} (error {number})" if number else f"Slurm refused: {words}")
        self.number = number
        self.words = words


class Denied(Rejected):
    """Refused because of who asks (error 2002)."""


class NotFound(Rejected):
    """No such job, or one this user may not see: Slurm answers both alike (error 2017)."""


class Unauthorized(SlurmError):
    """The token is missing, wrong or expired, or may not speak for that user."""


class Unavailable(SlurmError):
    """Could not ask: connection, time-out, or a daemon behind slurmrestd is down.

    Attributes:
        retry_after: seconds that the answer asked to wait for, None when it did not say.
    """

    retry_after: float | None = None


class MaybeAccepted(SlurmError):
    """The answer to a submit was lost; the job may exist. Look it up by its identity first."""


class Incompatible(SlurmError):
    """No API version in common."""

    def __init__(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        super().__init__(
            f"no API version in common: this adapter speaks {', '.join(ours) or 'none'}, "
            f"slurmrestd serves {', '.join(theirs) or 'none that it would name'}"
        )
        self.ours = tuple(ours)
        self.theirs = tuple(theirs)

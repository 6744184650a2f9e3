"""Settings values → a Gateway. Plain arguments: this room does not know the configuration file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.slurm import breaker as breaking
from slurmrest_adapter.slurm import retry as retrying
from slurmrest_adapter.slurm.breaker import BreakerPolicy
from slurmrest_adapter.slurm.gateway import Gateway
from slurmrest_adapter.slurm.retry import RetryPolicy
from slurmrest_adapter.slurm.session import Session
from slurmrest_adapter.slurm.tokens import FileToken, Hs256Key, NoToken, StaticToken, TokenSource


@dataclass(frozen=True, slots=True, repr=False)
class TokenSettings:
    """The section ``slurm.token``.

    Attributes:
        source: hs256, file, static or none.
        key_file: of hs256.
        token_file: of file.
        value: of static; never shown.
        lifetime_s: of hs256, in seconds.
    """

    source: str
    key_file: str | None = None
    token_file: str | None = None
    value: str | None = None
    lifetime_s: float = 600

    def __repr__(self) -> str:
        return f"TokenSettings(source={self.source!r})"


def token_source(settings: TokenSettings) -> TokenSource:
    """The source that the settings name.

    Raises:
        ConfigError: no such source, or what it needs is missing.
    """
    match settings.source:
        case "hs256":
            return Hs256Key(_needed(settings.key_file, "key_file", "hs256"), lifetime_s=settings.lifetime_s)
        case "file":
            return FileToken(_needed(settings.token_file, "file", "file"))
        case "static":
            return StaticToken(_needed(settings.value, "token", "static"))
        case "none":
            return NoToken()
        case other:
            raise ConfigError(f"slurm.token.source: {other!r} is not hs256, file, static or none")


def build_gateway(
    endpoints: Sequence[str],
    token: TokenSettings,
    *,
    api_version: str = "auto",
    service_user: str | None = None,
    connect_s: float = 5.0,
    read_s: float = 30.0,
    pool: int = 8,
    ca_file: str | None = None,
    min_uid: int = 1000,
    never_as: Collection[str] = ("root", "slurm"),
    retry: RetryPolicy = retrying.USUAL,
    breaker: BreakerPolicy = breaking.USUAL,
) -> Gateway:
    """A gateway; nothing is sent before its first call.

    Raises:
        ConfigError: a value cannot be used; the text names its key.
    """
    source = token_source(token)
    session = Session(endpoints, connect_s=connect_s, read_s=read_s, pool=pool, ca_file=ca_file)
    return Gateway(
        session,
        source,
        api_version=api_version,
        service_user=service_user,
        min_uid=min_uid,
        never_as=never_as,
        retry=retry,
        breaker=breaker,
    )


def _needed(value: str | None, key: str, source: str) -> str:
    if not value:
        raise ConfigError(f"slurm.token.{key}: needed by source {source}")
    return value

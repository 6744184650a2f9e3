"""Where the token of a Slurm user comes from.

A token is read or minted for each call, travels in a header of that call alone and is wrapped in
`Secret` until then, so that no `repr`, log line or exception text can hold it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slurmrest_adapter.domain.errors import ConfigError, Unauthorized


class Secret:
    """A string that shows itself only when asked by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The string itself; put it into a header, nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled")


class TokenSource(Protocol):
    """Gives tokens; safe for use by many threads.

    Attributes:
        name: what it is, for messages: ``the token file /etc/token``.
        advice: what to do when Slurm refuses its tokens.
        needs_user: every token is some named user's; there is none without a name.
        says_who: calls carry a token. False: the listener itself decides whose calls they are.
    """

    @property
    def name(self) -> str: ...
    @property
    def advice(self) -> str: ...
    @property
    def needs_user(self) -> bool: ...
    @property
    def says_who(self) -> bool: ...

    def token(self, user: str | None) -> Secret | None:
        """The token for a call as `user`; None when the listener takes none.

        Args:
            user: None asks as whoever the token belongs to.
        Raises:
            Unauthorized: there is none to be had.
        """
        ...

    def expires(self, user: str | None) -> float | None:
        """POSIX seconds of the expiry; None when there is none or it cannot be known."""
        ...


class NoToken:
    """For a listener with ``rest_auth/local``: the socket itself says who asks."""

    name = "no token (source: none)"
    advice = "this listener wants a token: set slurm.token, or use the unix socket with rest_auth/local"
    needs_user = False
    says_who = False

    def token(self, user: str | None) -> Secret | None:
        """Always None."""
        return None

    def expires(self, user: str | None) -> float | None:
        """Never."""
        return None


class StaticToken:
    """One token from the configuration."""

    name = "the static token"
    advice = "make a new one (scontrol token) and set slurm.token.token"
    needs_user = False
    says_who = True

    def __init__(self, token: str) -> None:
        self._token = Secret(_clean(token, "slurm.token.token"))

    def token(self, user: str | None) -> Secret:
        """The same for everybody; the user's name goes in a header of its own."""
        return self._token

    def expires(self, user: str | None) -> float | None:
        """The token's own `exp` claim."""
        return expiry(self._token)


class FileToken:
    """A token in a file that something else renews; read for each call."""

    needs_user = False
    says_who = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.name = f"the token file {os.fspath(path)}"
        self.advice = f"write a fresh token (scontrol token) into {os.fspath(path)}"

    def token(self, user: str | None) -> Secret:
        """What the file holds now; ``SLURM_JWT=`` before the token is taken off."""
        try:
            text = _read(self._path).decode("ascii").strip()
        except UnicodeDecodeError:
            text = ""
        if not text:
            raise Unauthorized(f"{self.name} holds no token; {self.advice}")
        return Secret(_clean(text, self.name))

    def expires(self, user: str | None) -> float | None:
        """The `exp` claim of the token in the file."""
        try:
            return expiry(self.token(user))
        except Unauthorized:
            return None


class Hs256Key:
    """Mints each user's token from the cluster's HS256 key (``AuthAltParameters=jwt_key=``).

    A token is minted with the claims Slurm's auth/jwt reads (sun, iat, exp) and used for 80% of
    its life, so that one in flight does not expire.

    Args:
        path: the key file; read for each call, and a changed key makes every token anew.
        lifetime_s: of a token, in seconds.
        clock: POSIX seconds, for tests.
    """

    needs_user = True
    says_who = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lifetime_s: float = 600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if lifetime_s < 10:
            raise ConfigError(f"slurm.token.lifetime_s: {lifetime_s:g} s are too short")
        self._path = Path(path)
        self._lifetime = lifetime_s
        self._clock = clock
        self._lock = threading.Lock()
        self._minted: dict[str, tuple[Secret, float, float]] = {}  # token, renew at, expires at
        self._key_seen = b""
        self.name = f"the HS256 key {os.fspath(path)}"
        self.advice = (
            f"check that {os.fspath(path)} is the cluster's jwt_key, that the user exists there "
            "and that the clocks agree"
        )

    def token(self, user: str | None) -> Secret:
        """The user's own token, minted or from the cache."""
        if user is None:
            raise Unauthorized("no user was named to ask Slurm as; set slurm.service_user")
        with self._lock:
            return self._entry(user)[0]

    def expires(self, user: str | None) -> float | None:
        """When the user's present token ends; None before the first."""
        with self._lock:
            entry = self._minted.get(user or "")
        return entry[2] if entry else None

    def _entry(self, user: str) -> tuple[Secret, float, float]:
        key = _read(self._path)
        if key != self._key_seen:
            if len(key) < 16:
                raise Unauthorized(f"{self.name} is shorter than the 16 bytes Slurm asks for")
            self._minted.clear()
            self._key_seen = key
        import jwt  # with the cryptography that it brings, only where tokens are minted or read

        now = self._clock()
        entry = self._minted.get(user)
        if entry is None or not entry[2] - self._lifetime - 1 <= now < entry[1]:
            end = now + self._lifetime
            claims = {"sun": user, "iat": int(now), "exp": int(end)}
            token = Secret(jwt.encode(claims, key, algorithm="HS256"))
            entry = (token, now + 0.8 * self._lifetime, float(int(end)))
            self._minted = {name: old for name, old in self._minted.items() if old[2] > now}
            self._minted[user] = entry
        return entry


def expiry(token: Secret) -> float | None:
    """The `exp` claim of a JWT, unverified; None when it has none or is no JWT."""
    import jwt

    try:
        claims = jwt.decode(token.reveal(), options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return None
    end = claims.get("exp")
    return float(end) if isinstance(end, int | float) else None


def _read(path: Path) -> bytes:
    """Read for every token: a file this small costs less than any rule of when it has changed."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unauthorized(f"cannot read {path}: {error.strerror}") from None


def _clean(token: str, where: str) -> str:
    token = token.strip().removeprefix("SLURM_JWT=")
    if not token or not token.isascii() or any(c.isspace() or not c.isprintable() for c in token):
        raise Unauthorized(f"{where} is no token")
    return token

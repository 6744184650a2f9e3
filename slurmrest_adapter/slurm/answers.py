"""What an HTTP answer of slurmrestd means in the project's own errors.

slurmrestd answers in several voices (facts, "Errors"): JSON with ``errors[]`` under 500 (24.11) or
422 (26.05), but also under 200; plain text for routing, tokens and broken requests; and whatever a
proxy in between says. Here all of them become one tree:

    redirect, or an answer that is no slurmrestd's   SlurmError
    401, 511, error 1007                             Unauthorized
    404 as plain text: no such API version           Incompatible
    the same under /slurmdb                          NoDatabase, or no such API version either
    slurmrestd cannot connect further (1800, 7000)   Unavailable, naming the daemon
    429, somebody in between limits the rate         Unavailable: it was not done
    other 5xx without a number of Slurm's            AnswerLost: whether it was done is not known
    errors[]                                         Rejected, Denied (2002, 2010), NotFound (2017)

Numbers are those of Slurm's slurm/slurm_errno.h.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
import requests

from slurmrest_adapter.domain.errors import (
    Denied,
    Incompatible,
    NotFound,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.slurm.session import AnswerLost, daemon_behind
from slurmrest_adapter.slurm.tokens import Secret, TokenSource, expiry

TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the header's name
USER_HEADER = "X-SLURM-USER-NAME"

DENIED = 2002
# How an update of another's job is denied (ESLURM_USER_ID_MISSING, "Invalid user id").
_NOT_YOURS = 2010
NO_SUCH_JOB = 2017
ALREADY_DONE = 2021
NO_JOBS_GIVEN = 2173
_BAD_TOKEN = {1007, 6000, 6001, 9008}
# The connection to the daemon behind slurmrestd was never made, so nothing reached it.
_CONNECT_FAILED = {1800: "slurmctld", 7000: "slurmdbd", 2027: "slurmctld", 2131: "slurmctld"}
# A connection between daemons broke or fell silent: nobody knows whether the request was acted upon.
_CONVERSATION_BROKE = {*range(1001, 1005), *range(1013, 1026), *range(1801, 1806), 5003, 5004, 5005, 7008}
_GATEWAY = (502, 503, 504)
_TOO_MANY = 429
_MOST_WORDS = 300


class NoDatabase(SlurmError):
    """slurmrestd serves no ``/slurmdb``: the site has no slurmdbd, or does not show it.

    An answer, not a failure to ask: asking again changes nothing.
    """

    def __init__(self) -> None:
        super().__init__("slurmrestd serves no /slurmdb here: there is no slurmdbd to ask")


class ErrorRow(msgspec.Struct):
    """One row of ``errors[]`` or ``warnings[]``; everything may be missing or null."""

    description: Any = None
    error_number: Any = None
    error: Any = None

    @property
    def number(self) -> int:
        """Slurm's error number; 0 for none and for its general -1."""
        return max(self.error_number, 0) if isinstance(self.error_number, int) else 0

    @property
    def words(self) -> str:
        """What Slurm says: the error's name, and the description where that says more."""
        short, longer = _line(self.error), _line(self.description)
        if short and longer and self.number == 0 and short not in longer:
            return f"{short}: {longer}"
        return (short if self.number else longer) or short or longer


class Envelope(msgspec.Struct):
    """What every JSON answer has beside its data."""

    errors: list[ErrorRow] | None = None
    warnings: list[ErrorRow] | None = None
    meta: Any = None

    @property
    def keeps_accounts(self) -> bool | None:
        """Whether the site has slurmdbd; None where slurmrestd does not say."""
        plugin = self.meta.get("plugin") if isinstance(self.meta, dict) else None
        storage = plugin.get("accounting_storage") if isinstance(plugin, dict) else None
        return bool(storage) if isinstance(storage, str) else None

    @property
    def error_rows(self) -> list[ErrorRow]:
        """The errors that say anything."""
        return [row for row in self.errors or () if row.number or row.words]

    @property
    def warning_words(self) -> tuple[str, ...]:
        """The warnings in Slurm's words, none twice."""
        said = (_line(row.description) or _line(row.error) for row in self.warnings or ())
        return tuple(dict.fromkeys(words for words in said if words))


_ENVELOPE = msgspec.json.Decoder(Envelope)


@dataclass(frozen=True, slots=True)
class _Seen:
    """An answer with the token taken out, should anything have echoed it."""

    status: int
    kind: str  # content type without its parameters
    content: bytes
    location: str
    path: str

    @property
    def text(self) -> str:
        return _line(self.content.decode("utf-8", "replace"))


def envelope(content: bytes) -> Envelope | None:
    """Errors and warnings of a JSON document, also of one with ``NaN``; None when it is none."""
    try:
        return _ENVELOPE.decode(content)
    except msgspec.DecodeError:
        pass
    try:
        return msgspec.convert(json.loads(content), Envelope)
    except (ValueError, RecursionError):  # msgspec's ValidationError is a ValueError
        return None


def check(
    response: requests.Response, *, source: TokenSource, user: str | None = None, ours: Sequence[str] = ()
) -> Envelope:
    """The errors and warnings of a success; raises what any other answer means.

    Args:
        source: of the token that was sent, for the message of a refusal.
        user: who asked; None is the token's owner.
        ours: the API versions this adapter speaks, for `Incompatible`.
    Raises:
        SlurmError: as the module's table says.
    """
    seen, found = _see(response)
    status = seen.status
    if 300 <= status < 400:
        raise _redirect(seen)
    errors = found.error_rows if found else []
    if (
        status in (401, 407, 511)
        or any(row.number in _BAD_TOKEN for row in errors)
        or (found is None and status >= 400 and "authentication" in seen.text.lower())
    ):
        why = next((row.words for row in errors), "") or (seen.text if found is None else "")
        raise Unauthorized(_refused_token(why or f"HTTP {status}", response, source, user))
    if status == _TOO_MANY:
        raise Unavailable(f"HTTP {status}: too many requests: {seen.text or 'nothing more'}")
    if found is None:
        raise _no_json(seen, ours)
    if errors:
        first = next((row for row in errors if row.number), errors[0])
        raise row_error(first, status=status, path=seen.path)
    if status >= 500:
        raise AnswerLost(
            f"slurmrestd answered HTTP {status} without saying why; it had to ask {daemon_behind(seen.path)}"
        )
    if status >= 400:
        raise Rejected(0, "; ".join((f"HTTP {status}", *found.warning_words)))
    return found


def submitted(response: requests.Response) -> Envelope | None:
    """Errors and warnings of a submit's JSON answer; None when it is none. Raises nothing."""
    return _see(response)[1]


def row_error(row: ErrorRow, *, status: int = 200, path: str = "") -> SlurmError:
    """The error that one row means.

    Args:
        status: of the HTTP answer.
        path: of the request; says which daemon stands behind it.
    """
    number, words = row.number, row.words or "no words given"
    daemon = daemon_behind(path)
    if number in _CONNECT_FAILED:
        return Unavailable(f"{_CONNECT_FAILED[number]} does not answer slurmrestd: {words} (error {number})")
    if number in _CONVERSATION_BROKE or status in _GATEWAY or (status >= 500 and not number):
        ending = f" (error {number})" if number else f" (HTTP {status})"
        return AnswerLost(f"slurmrestd got no answer from {daemon}: {words}{ending}")
    if number in (DENIED, _NOT_YOURS):
        return Denied(number, words)
    if number == NO_SUCH_JOB:
        return NotFound(number, words)
    return Rejected(number, words)


def _see(response: requests.Response) -> tuple[_Seen, Envelope | None]:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    content = response.content
    token = response.request.headers.get(TOKEN_HEADER)
    if token:
        content = content.replace(token if isinstance(token, bytes) else token.encode(), b"[token]")
    location = response.headers.get("Location", "")
    seen = _Seen(response.status_code, kind, content, location, response.request.path_url)
    return seen, envelope(content) if kind == "application/json" else None


def _redirect(seen: _Seen) -> SlurmError:
    to = urlsplit(seen.location)
    where = f" to {to.scheme}://{to.hostname}" if to.scheme and to.hostname else ""
    return SlurmError(
        f"the address answers with a redirect{where} (HTTP {seen.status}), which is not followed because "
        "the token would travel along; correct slurm.endpoints"
    )


def _no_json(seen: _Seen, ours: Sequence[str]) -> SlurmError:
    status, kind = seen.status, seen.kind or "an untyped body"
    if status >= 500:
        said = seen.text or "nothing more"
        return AnswerLost(f"HTTP {status} in place of an answer of {daemon_behind(seen.path)}'s: {said}")
    if status < 400:
        what = "JSON that breaks off" if seen.kind == "application/json" else f"{kind} in place of JSON"
        return AnswerLost(f"HTTP {status} with {what}; is there a slurmrestd at slurm.endpoints?")
    if status == 404 and seen.kind in ("", "text/plain"):
        return NoDatabase() if seen.path.startswith("/slurmdb/") else Incompatible(ours, ())
    if status == 404 or seen.kind == "text/html":
        return SlurmError(f"HTTP {status} with {kind}: there is no slurmrestd at slurm.endpoints")
    return Rejected(0, f"{seen.text} (HTTP {status})" if seen.text else f"HTTP {status}")


def _refused_token(why: str, response: requests.Response, source: TokenSource, user: str | None) -> str:
    sent = response.request.headers.get(TOKEN_HEADER)
    end = expiry(Secret(sent)) if isinstance(sent, str) else None
    expired = "; it has expired" if end is not None and end <= time.time() else ""
    whom = f" for user {user}" if user else ""
    return f"Slurm does not accept {source.name}{whom}: {why}{expired}; {source.advice}"


def _line(text: object) -> str:
    """One line of at most 300 characters; nothing for what is no string."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"

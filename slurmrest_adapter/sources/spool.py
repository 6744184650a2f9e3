"""The plugin's spool: a directory of events that could not be delivered, a file each, and its delivery.

A file is removed only after its event was answered as taken. So whatever ends the delivery, nothing
is lost; what had been answered and not yet removed comes a second time and is known by its number.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurmrest_adapter.domain.errors import AdapterError
from slurmrest_adapter.sources.spank import MOST_BYTES
from slurmrest_adapter.sources.spankpost import NotDelivered

_NAME = re.compile(r"\d{20}-[0-9a-f]{16}-\d{6,}\.event")
_SIGNATURE_BYTES = 200
# "Later", where the same event may be taken in a moment.
LATER = frozenset({429, 503})
_TRIES = 5
_PAUSE_SECONDS = 0.5

Post = Callable[[bytes, str], int]


class BadSpool(AdapterError):
    """The directory cannot be read, or is none."""


@dataclass
class Drained:
    """What became of a spool.

    Attributes:
        delivered: events that were taken, or had been before.
        refused: file name → why it is kept: the code of the answer, or what is wrong with the file.
        left: files that were not tried, because nobody answered any more.
        stopped: why, "" when all were tried.
        dropped: events that the plugin had no room for, as it counted them.
    """

    delivered: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    left: int = 0
    stopped: str = ""
    dropped: int = 0

    @property
    def kept(self) -> int:
        """Files that are still there."""
        return len(self.refused) + self.left


def drain(
    directory: Path,
    post: Post,
    sleep: Callable[[float], None],
    tell: Callable[[Drained], None] = lambda _: None,
) -> Drained:
    """Deliver a spool in the order of its names, and what is added meanwhile; see the module's text.

    Args:
        post: the code of the answer to a body and its signature; raises `NotDelivered`.
        tell: called after each event.

    Raises:
        BadSpool: the directory cannot be read.
    """
    done = Drained(dropped=_dropped(directory))
    tried: set[str] = set()
    while not done.stopped and (names := [name for name in _names(directory) if name not in tried]):
        for at, name in enumerate(names):
            tried.add(name)
            try:
                why = _deliver(directory / name, post, sleep)
            except NotDelivered as error:
                done.stopped, done.left = str(error), len(names) - at
                break
            if why:
                done.refused[name] = why
            else:
                done.delivered += 1
            tell(done)
    return done


def waiting(directory: Path) -> int:
    """How many events a spool holds.

    Raises:
        BadSpool: the directory cannot be read.
    """
    return len(_names(directory))


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise BadSpool(f"{directory}: {error.strerror}") from error


def _deliver(path: Path, post: Post, sleep: Callable[[float], None]) -> str:
    """Deliver one and remove it; why it is kept, "" when it was taken."""
    try:
        signature, body = _read(path)
    except FileNotFoundError:
        return ""  # another delivery, or the plugin, which makes room
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    code = 0
    for pause in _pauses():
        code = post(body, signature)
        if code not in LATER:
            break
        sleep(pause)
    if code in LATER:
        raise NotDelivered(f"answered {code} {_TRIES} times")
    if not 200 <= code < 300:
        return f"answered {code}"
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"was taken, but cannot be removed: {error.strerror}"
    return ""


def _pauses() -> Iterator[float]:
    for number in range(_TRIES):
        yield _PAUSE_SECONDS * 2**number


def _read(path: Path) -> tuple[str, bytes]:
    """The signature and the body: the first line and the rest."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("is no regular file")
        text = file.read(_SIGNATURE_BYTES + MOST_BYTES + 1)
    signature, newline, body = text.partition(b"\n")
    if not newline or len(signature) > _SIGNATURE_BYTES or not body or len(body) > MOST_BYTES:
        raise ValueError("is no signature and event")
    return signature.decode("ascii", "replace"), body


def _dropped(directory: Path) -> int:
    try:
        text = (directory / "dropped").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.strip().isdecimal() and len(text) < 24 else 0

"""Events of the SPANK plugin: the key, the proof, and the checked reading of what nodes send."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec
import msgspec.structs

from slurmrest_adapter.domain import spank
from slurmrest_adapter.domain.errors import ConfigError, Invalid
from slurmrest_adapter.domain.spank import SpankEvent

SIGNATURE_HEADER = "X-SRA-Signature"
SCHEME = "sha256="
# docs/spank.md: an event is less than that.
MOST_BYTES = 4096
LEAST_KEY_BYTES = 32
_MOST_KEY_BYTES = 4096

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Gpu = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class _Wire(msgspec.Struct):
    """An event's JSON; what a later plugin adds is ignored."""

    v: Annotated[int, msgspec.Meta(ge=1, le=1)]
    event: str
    cluster: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
    node: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,255}\Z")]
    time: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    stream: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    job: Annotated[int, msgspec.Meta(ge=1, le=2**32)] | None = None
    step: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._+-]{0,32}\Z")] | None = None
    pod: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{0,64}\Z")] | None = None
    gpus: Annotated[list[_Gpu], msgspec.Meta(max_length=256)] | None = None
    cpu_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None
    peak_bytes: _Count | None = None
    dropped: _Count | None = None


_DECODER = msgspec.json.Decoder(_Wire)


def read_key(path: Path) -> bytes:
    """The key that nodes sign with; one newline at its end is not part of it.

    Raises:
        ConfigError: it cannot be read, others than its owner may use it, its owner is neither root nor
            this process's user, or it is too short.
    """
    where = f"spank.key_file: {path}"
    try:
        # O_NONBLOCK: a FIFO in its place must not hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{where} is no regular file")
            if found.st_uid not in (0, os.geteuid()):
                raise ConfigError(
                    f"{where} belongs to uid {found.st_uid}; it must be root's or this process's"
                )
            if found.st_mode & 0o077:
                mode = stat.S_IMODE(found.st_mode)
                raise ConfigError(f"{where} has mode {mode:04o}, so others may use it: chmod 600")
            key = file.read(_MOST_KEY_BYTES + 2).removesuffix(b"\n")
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    if len(key) > _MOST_KEY_BYTES:
        raise ConfigError(f"{where} is larger than {_MOST_KEY_BYTES} bytes, so it is no key")
    if len(key) < LEAST_KEY_BYTES:
        raise ConfigError(f"{where} holds {len(key)} bytes; a key has {LEAST_KEY_BYTES} at least")
    return key


def sign(key: bytes, body: bytes) -> str:
    """The signature's header value."""
    return SCHEME + hmac.digest(key, body, "sha256").hex()


class Proof:
    """Tells what is signed with a key; made once, because the key's own part of the work is the larger."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod=hashlib.sha256)

    def holds(self, body: bytes, signature: str) -> bool:
        """Is the body signed? Takes as long for a wrong signature as for a right one."""
        mac = self._keyed.copy()
        mac.update(body)
        expected = SCHEME + mac.hexdigest()
        return hmac.compare_digest(expected.encode(), signature.strip().encode("utf-8", "replace"))


def parse(body: bytes) -> SpankEvent:
    """An event; only worth reading once it is proved.

    Raises:
        Invalid: it is none; the text names the field.
    """
    try:
        wire = _DECODER.decode(body)
        event = spank.from_fields(msgspec.structs.asdict(wire))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # Nothing of the body: whoever reads the log has not asked for a stranger's text.
        words = str(error) if isinstance(error, msgspec.ValidationError) else "is no JSON of an event"
        raise Invalid("event", words[:200]) from None
    if (event.job == 0) != (event.kind is spank.Kind.TEST):
        raise Invalid("event.job", "belongs to every event but a test")
    return event

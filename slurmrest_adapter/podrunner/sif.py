"""What a SIF file holds: where its squashfs lies and the OCI configuration it was made from.

Apptainer keeps the `config` part of the OCI image configuration as a data object; ENTRYPOINT, CMD, ENV and
WORKDIR are nowhere else in exact form. The layout is that of the public SIF format, version 1: a
global header of 128 bytes and then fixed-size descriptors, all little-endian.
"""

import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional

_HEADER = 128
_MAGIC_AT, _MAGIC = 32, b"SIF_MAGIC"
_COUNTS_AT = 64  # created, modified, descriptors free and total, their offset and size, data offset and size
_COUNTS = struct.Struct("<8q")
_DESCRIPTOR = struct.Struct(
    "<i?IIIqqqqqqq"
)  # type, used, id, group, link, offset, size, padded, times, owner
_NAME_LENGTH = 128
_EXTRA_AT = _DESCRIPTOR.size + _NAME_LENGTH
_TYPE_PARTITION = 0x4004
_TYPE_OCI = (0x4006, 0x400A)  # generic JSON as Apptainer 1.x writes it, and the format's own OCI blob
_FILE_SYSTEM_SQUASHFS = 1
_LIMIT = 16 * 1024 * 1024


class SifError(ValueError):
    """Not a SIF file that can be read."""


class Sif(NamedTuple):
    """`squashfs_offset` in bytes, None if the root file system is of another kind.

    `config` is the `config` part of the OCI image configuration (Entrypoint, Cmd, Env…), None if the
    file has none, which is so for images that were not made from OCI ones.
    """

    squashfs_offset: Optional[int]
    config: Optional[Dict[str, Any]]


def read(path: str) -> Sif:
    """Read a SIF's tables and its configuration.

    Raises SifError for what is no SIF, OSError if it cannot be read.
    """
    with open(path, "rb") as stream:
        header = stream.read(_HEADER)
        if len(header) < _HEADER or header[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
            raise SifError("not a SIF file")
        counts = _COUNTS.unpack_from(header, _COUNTS_AT)
        total, table_at, table_size = counts[3], counts[4], counts[5]
        if not 0 < total <= 4096 or not 0 < table_size <= _LIMIT or table_at < 0:
            raise SifError("broken SIF header")
        size = table_size // total
        if size < _EXTRA_AT:
            raise SifError("broken SIF header")
        stream.seek(table_at)
        table = stream.read(table_size)
        if len(table) < table_size:
            raise SifError("truncated SIF file")
        offset: Optional[int] = None
        config: Optional[Dict[str, Any]] = None
        for entry in _entries(table, size, total):
            if entry.kind == _TYPE_PARTITION and offset is None:
                if entry.file_system == _FILE_SYSTEM_SQUASHFS:
                    offset = entry.offset
            elif entry.kind in _TYPE_OCI and entry.name.startswith("oci-config"):
                config = _config(stream, entry)
    return Sif(offset, config)


class _Entry(NamedTuple):
    kind: int
    offset: int
    size: int
    name: str
    file_system: int


def _entries(table: bytes, size: int, total: int) -> List[_Entry]:
    found = []
    for index in range(total):
        raw = table[index * size : (index + 1) * size]
        kind, used, _, _, _, offset, length = _DESCRIPTOR.unpack_from(raw)[:7]
        if not used:
            continue
        name = raw[_DESCRIPTOR.size : _EXTRA_AT].split(b"\0", 1)[0].decode("utf-8", "replace")
        extra = raw[_EXTRA_AT : _EXTRA_AT + 4]
        file_system = struct.unpack("<i", extra)[0] if len(extra) == 4 else 0
        found.append(_Entry(kind, offset, length, name, file_system))
    return found


def _config(stream: Any, entry: _Entry) -> Dict[str, Any]:
    if not 0 <= entry.size <= _LIMIT or entry.offset < 0:
        raise SifError("broken SIF descriptor of the OCI configuration")
    stream.seek(entry.offset)
    try:
        value = json.loads(stream.read(entry.size).decode("utf-8"))
    except ValueError:
        raise SifError("the OCI configuration in the SIF is not valid JSON")
    if not isinstance(value, dict):
        raise SifError("the OCI configuration in the SIF is not an object")
    inner = value.get("config")
    return inner if isinstance(inner, dict) else value

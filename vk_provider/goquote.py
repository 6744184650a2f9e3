"""Go's ``%q``: how the kubelet writes labels and annotations into downward API files."""

from __future__ import annotations

_NAMED = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def quoted(text: str) -> str:
    """The text in double quotes, by the rules of Go's strconv.Quote."""
    return '"' + "".join(map(_one, text)) + '"'


def _one(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character == " " or (character.isprintable() and not character.isspace()):
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

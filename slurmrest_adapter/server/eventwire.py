"""The HTTP of nodes that post events: requests out of bytes, and the bytes of answers.

Parsed by httptools (llhttp): a node waits for its answer, and h11 alone took longer than all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

import httptools

from slurmrest_adapter.sources.spank import MOST_BYTES, SIGNATURE_HEADER

HEADER_BYTES = 8192
_SIGNATURE = SIGNATURE_HEADER.lower().encode()


@dataclass(frozen=True, slots=True)
class Posted:
    """A whole request.

    Attributes:
        signature: the header's text, "" without one.
        stays: does the client want the connection kept open?
    """

    body: bytes
    signature: str
    stays: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that is answered with this status code, and nothing after it."""

    code: int


class EventWire:
    """What has come on one connection.

    Args:
        path: the one path that is known.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._parser = httptools.HttpRequestParser(self)
        self._ready: list[Posted | Refused] = []
        self._refused = False
        self._begun = False
        self._in_head = True
        self._head_bytes = 0
        self._url = b""
        self._signature = b""
        self._length = b""
        self._body = b""

    def receive(self, data: bytes) -> None:
        """Take what has come; empty when the client sends no more. See `taken`."""
        if self._refused:
            return
        if not data:
            if self._begun:
                self._refuse(400)
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
        if self._in_head and self._begun:
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES:
                self._refuse(431)

    @property
    def ready(self) -> bool:
        """Is there something to answer?"""
        return bool(self._ready)

    def taken(self) -> list[Posted | Refused]:
        """What is to be answered and was not handed out before, oldest first."""
        taken, self._ready = self._ready, []
        return taken

    @property
    def unread(self) -> bool:
        """Has something come, or might it still, that will not be looked at?"""
        return self._refused

    def _refuse(self, code: int) -> None:
        if not self._refused:
            self._refused = True
            self._ready.append(Refused(code))

    # What httptools calls; an exception of these would be lost in its own.

    def on_message_begin(self) -> None:
        """A request has begun."""
        self._begun, self._in_head, self._head_bytes = True, True, 0
        self._url = self._signature = self._length = self._body = b""

    def on_url(self, part: bytes) -> None:
        """Some of its target."""
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; llhttp itself refuses two lengths, and one that is no number."""
        name = name.lower()
        if name == _SIGNATURE:
            self._signature = value
        elif name == b"content-length":
            self._length = value

    def on_headers_complete(self) -> None:
        """The head is whole: some answers need no body."""
        self._in_head = False
        if self._url != self._path:
            self._refuse(404)
        elif self._parser.get_method() != b"POST":
            self._refuse(405)
        elif len(self._length) > 9 or int(self._length or b"0") > MOST_BYTES:
            self._refuse(413)

    def on_body(self, part: bytes) -> None:
        """Some of the body."""
        if not self._refused:
            self._body += part
            if len(self._body) > MOST_BYTES:
                self._refuse(413)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._begun, self._in_head = False, True
        if not self._refused:
            signature = self._signature.decode("ascii", "replace").strip()
            self._ready.append(Posted(self._body, signature, self._parser.should_keep_alive()))


@cache
def answer(code: int, stays: bool) -> bytes:
    """The answer of this status code; `stays` tells the client whether it may send another request."""
    length = "" if code == 204 else "Content-Length: 0\r\n"
    kept = "keep-alive" if stays else "close"
    return f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{length}Connection: {kept}\r\n\r\n".encode()

"""Requests out of bytes, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.server.eventwire import HEADER_BYTES, EventWire, Posted, Refused, answer
from slurmrest_adapter.sources.spank import MOST_BYTES

PATH = b"/spank/v1/events"


def request(
    body: bytes = b"{}", *headers: bytes, path: bytes = PATH, method: bytes = b"POST", http: bytes = b"1.1"
) -> bytes:
    first = method + b" " + path + b" HTTP/" + http
    return b"\r\n".join([first, b"Host: x", b"Content-Length: %d" % len(body), *headers, b"", b""]) + body


def chunked(*parts: bytes) -> bytes:
    head = b"POST " + PATH + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def read(*pieces: bytes) -> list[Posted | Refused]:
    wire = EventWire(PATH)
    found = []
    for piece in pieces:
        wire.receive(piece)
        found += wire.taken()
    assert not wire.ready
    return found


def test_a_request() -> None:
    assert read(request(b"abc", b"X-SRA-Signature: sha256=00")) == [Posted(b"abc", "sha256=00", True)]
    assert read(request(b"abc", b"x-sra-signature:  s ", b"Connection: close")) == [
        Posted(b"abc", "s", False)
    ]
    assert read(request(b"", http=b"1.0")) == [Posted(b"", "", False)]
    assert read(chunked(b"ab", b"c")) == [Posted(b"abc", "", True)]


def test_a_signature_is_of_its_own_request() -> None:
    assert read(request(b"a", b"X-SRA-Signature: s") + request(b"b")) == [
        Posted(b"a", "s", True),
        Posted(b"b", "", True),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (request(path=b"/"), 404),
        (request(path=PATH + b"/"), 404),
        (request(path=PATH + b"?x"), 404),
        (request(method=b"GET"), 405),
        (request(method=b"PUT"), 405),
        (request(b"x" * (MOST_BYTES + 1)), 413),
        (chunked(*[b"x" * 1024] * 5), 413),
        (b"POST " + PATH + b" HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n", 413),
        (b"POST " + PATH + b" HTTP/1.1\r\nContent-Length: 999999999999999999999999\r\n\r\n", 400),
        (b"POST " + PATH + b" HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST " + PATH + b" HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST " + PATH + b" HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"\r\n" * 10 + b"nonsense\r\n\r\n", 400),
    ],
)
def test_what_is_refused(data: bytes, code: int) -> None:
    assert read(data) == [Refused(code)]
    assert read(data + request()) == [Refused(code)]  # nothing after it is read
    assert read(*(bytes([byte]) for byte in data)) == [Refused(code)]


def test_what_came_before_a_refusal_counts() -> None:
    assert read(request(b"a") + request(path=b"/")) == [Posted(b"a", "", True), Refused(404)]


def test_an_upgrade_is_none() -> None:
    found = read(request(b"", b"Upgrade: websocket", b"Connection: upgrade") + b"x" * 100)
    assert found[-1] == Refused(400)


def test_a_head_without_end() -> None:
    head = b"POST " + PATH + b" HTTP/1.1\r\n"
    assert read(head, *[b"X-A: " + b"y" * 2000 + b"\r\n"] * 5) == [Refused(431)]
    assert read(head + b"X: ", *[b"y" * 2000] * 5) == [Refused(431)]
    assert read(b"POST /", *[b"y" * 2000] * 5) == [Refused(431)]
    assert read(head + b"X: " + b"y" * (HEADER_BYTES + 1)) == [Refused(431)]


@pytest.mark.parametrize("data", [b"", b"\r\n", request()])
def test_it_ends_between_requests(data: bytes) -> None:
    assert Refused(400) not in read(data, b"")


@pytest.mark.parametrize("length", [1, 20, len(request()) - 1])
def test_it_ends_within_one(length: int) -> None:
    assert read(request()[:length], b"") == [Refused(400)]
    assert read(request() + request()[:length], b"") == [Posted(b"{}", "", True), Refused(400)]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.data())
def test_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(request(body, b"X-SRA-Signature: s") for body in bodies)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=10)))
    pieces = [whole[a:b] for a, b in pairwise([0, *cuts, len(whole)])]
    assert read(*pieces, b"") == [Posted(body, "s", True) for body in bodies]


@given(st.lists(st.one_of(st.binary(max_size=300), st.just(request())), max_size=8))
def test_any_bytes(pieces: list[bytes]) -> None:
    found = read(*pieces, b"")
    assert all(isinstance(one, Posted) for one in found[:-1])
    assert all(len(one.body) <= MOST_BYTES for one in found if isinstance(one, Posted))


def test_answers() -> None:
    assert answer(204, True) == b"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n"
    assert answer(403, False) == b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

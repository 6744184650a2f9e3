"""A job proves whose pod it is, or proves nothing."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.identity import PodIdentity, read, sign, uid_token

KEY = b"k" * 32
ME = PodIdentity("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "physics", "train", "lab")
WORDS = st.text(min_size=1, max_size=300)


@given(WORDS, WORDS, WORDS, WORDS, st.binary(min_size=32, max_size=64))
def test_what_was_signed_is_read(uid: str, namespace: str, name: str, cluster: str, key: bytes) -> None:
    identity = PodIdentity(uid, namespace, name, cluster)
    comment = sign(identity, key)
    assert read(comment, key) == identity
    assert read(comment + " a user's own words", key) == identity
    assert re.fullmatch(r"sra1:[A-Za-z0-9_-]+\.[0-9a-f]{16}", comment)


def test_another_key_proves_nothing() -> None:
    assert read(sign(ME, KEY), b"K" * 32) is None


@given(st.integers(min_value=0, max_value=200))
def test_a_cut_comment_proves_nothing(length: int) -> None:
    comment = sign(ME, KEY)
    if length < len(comment):
        assert read(comment[:length], KEY) is None


@given(st.data())
def test_a_changed_comment_proves_nothing(data: st.DataObject) -> None:
    comment = sign(ME, KEY)
    at = data.draw(st.integers(min_value=0, max_value=len(comment) - 1))
    letter = data.draw(st.sampled_from(string.printable))
    changed = comment[:at] + letter + comment[at + 1 :]
    if changed != comment:
        assert read(changed, KEY) is None


@given(st.text(max_size=200) | st.text(max_size=100).map(lambda rest: f"sra1:{rest}"))
def test_any_comment_can_be_read(comment: str) -> None:
    assert read(comment, KEY) is None


@pytest.mark.parametrize(
    "comment", ["sra1:\ud800.0", "sra1:é.\udfff", "sra1:", "sra1:.", "sra2:a.b", " sra1:a"]
)
def test_odd_comments_prove_nothing(comment: str) -> None:
    assert read(comment, KEY) is None


def test_the_identity_comes_first() -> None:
    assert read("mine " + sign(ME, KEY), KEY) is None


@given(st.text(alphabet=string.ascii_lowercase + "-.", min_size=1, max_size=253), st.uuids())
def test_a_job_name_is_the_pod_and_twelve_digits(name: str, uid: object) -> None:
    identity = PodIdentity(str(uid), "physics", name, "lab")
    assert identity.job_name == f"{name[:40]}-{str(uid).replace('-', '')[:12]}"
    assert len(identity.job_name) <= 53


@given(st.text(min_size=1, max_size=128))
def test_any_uid_gives_twelve_hexadecimal_digits(uid: str) -> None:
    assert re.fullmatch("[0-9a-f]{12}", uid_token(uid))
    assert uid_token(uid) == uid_token(uid)


def test_uids_that_are_no_uuid_do_not_share_digits() -> None:
    words = ["train", "train-1", "static-pod-0", "0a1b2c3d4e5", "x" * 128]
    assert len({uid_token(word) for word in words}) == len(words)
    assert uid_token("ABCDEF01-2345") == "abcdef012345"

"""Tokens: minted, read, kept for no longer than they live, and never shown."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import jwt
import pytest

from slurmrest_adapter.domain.errors import ConfigError, Unauthorized
from slurmrest_adapter.slurm.build import TokenSettings, token_source
from slurmrest_adapter.slurm.tokens import FileToken, Hs256Key, NoToken, Secret, StaticToken

KEY = bytes(range(32))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "jwt.key"
    path.write_bytes(KEY)
    return path


def claims(token: Secret, key: bytes = KEY) -> dict[str, object]:
    return dict(
        jwt.decode(
            token.reveal(), key, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False}
        )
    )


def test_minted_token_is_the_users_own(key_file: Path) -> None:
    source = Hs256Key(key_file, lifetime_s=100, clock=lambda: 1000.4)
    assert claims(source.token("alice")) == {"sun": "alice", "iat": 1000, "exp": 1100}
    assert claims(source.token("bob"))["sun"] == "bob"
    assert source.expires("alice") == 1100
    assert source.expires("carol") is None


def test_minted_token_is_kept_to_80_percent_of_its_life(key_file: Path) -> None:
    now = [1000.0]
    source = Hs256Key(key_file, lifetime_s=100, clock=lambda: now[0])
    first = source.token("alice")
    now[0] = 1079.9
    assert source.token("alice") is first
    now[0] = 1080.0
    assert claims(source.token("alice"))["exp"] == 1180
    now[0] = 500.0  # the clock was set back: the token is not valid yet for anybody
    assert claims(source.token("alice"))["iat"] == 500


def test_a_changed_key_makes_new_tokens(key_file: Path) -> None:
    source = Hs256Key(key_file, clock=lambda: 1000.0)
    source.token("alice")
    other = bytes(32)
    key_file.write_bytes(other)
    assert claims(source.token("alice"), other)["sun"] == "alice"


def test_minting_needs_a_user_and_a_key(key_file: Path, tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="service_user"):
        Hs256Key(key_file).token(None)
    with pytest.raises(Unauthorized, match=r"cannot read .*none: No such file"):
        Hs256Key(tmp_path / "none").token("alice")
    key_file.write_bytes(b"short")
    with pytest.raises(Unauthorized, match="16 bytes"):
        Hs256Key(key_file).token("alice")
    with pytest.raises(ConfigError, match=r"slurm\.token\.lifetime_s"):
        Hs256Key(key_file, lifetime_s=1)


def test_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("SLURM_JWT=first\n")
    source = FileToken(path)
    assert source.token("alice").reveal() == "first"
    path.write_text("secnd")
    assert source.token("alice").reveal() == "secnd"
    renamed = tmp_path / "new"
    renamed.write_text("third")
    renamed.rename(path)
    assert source.token(None).reveal() == "third"
    assert source.expires(None) is None
    path.write_text(jwt.encode({"exp": 4711}, KEY))
    assert source.expires(None) == 4711


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"line\nline"])
def test_file_without_a_token(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(Unauthorized, match="token file"):
        FileToken(path).token("alice")
    assert FileToken(path).expires(None) is None


def test_static_and_none() -> None:
    source = StaticToken(" abc ")
    assert source.token("alice").reveal() == "abc"
    assert source.token(None).reveal() == "abc"
    assert NoToken().token("alice") is None


def test_no_secret_in_any_text(tmp_path: Path, key_file: Path) -> None:
    secret = "eyJhbGciOi"
    path = tmp_path / "token"
    path.write_text(secret + " x")
    for shown in (StaticToken(secret), Secret(secret), TokenSettings("static", value=secret)):
        assert secret not in repr(shown)
        assert secret not in str(shown)
    with pytest.raises(Unauthorized) as caught:
        FileToken(path).token("alice")
    assert secret not in "".join(traceback.format_exception(caught.value))
    minted = Hs256Key(key_file)
    assert minted.token("alice").reveal() not in repr(minted) + repr(vars(minted))
    with pytest.raises(TypeError):
        pickle.dumps(Secret(secret))


def test_settings(key_file: Path, tmp_path: Path) -> None:
    assert isinstance(token_source(TokenSettings("hs256", key_file=str(key_file))), Hs256Key)
    assert isinstance(token_source(TokenSettings("file", token_file=str(tmp_path))), FileToken)
    assert isinstance(token_source(TokenSettings("static", value="x")), StaticToken)
    assert isinstance(token_source(TokenSettings("none")), NoToken)
    for settings in (
        TokenSettings("hs256"),
        TokenSettings("file"),
        TokenSettings("static"),
        TokenSettings("vault"),
    ):
        with pytest.raises(ConfigError, match=r"^slurm\.token\."):
            token_source(settings)

"""The configuration: everything in the sample is known, nothing else is, and errors name the key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from slurmrest_adapter.config import Settings, load
from slurmrest_adapter.domain.errors import ConfigError

SAMPLE = Path(__file__).parent / "data" / "sample-config.yaml"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLURMREST_")]:
        monkeypatch.delenv(name)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def error(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text))
    words = str(caught.value)
    assert "\n" not in words
    return words


def test_the_documented_sample_is_accepted() -> None:
    settings = load(SAMPLE)
    assert settings.cluster == "lab"
    assert settings.slurm.token.source == "hs256"
    assert settings.identity.map[0].user == "alice"
    assert settings.defaults.time_limit == 3600
    assert settings.gpu.max_idle == 1800
    assert settings.images.insecure_registries == ("127.0.0.1:5000",)
    assert settings.shared_dir == Path("/shared/pods")


def test_the_sample_shows_every_section() -> None:
    raw = yaml.safe_load(SAMPLE.read_text())
    assert set(raw) == set(Settings.model_fields)


def test_what_the_sample_says_is_the_default_where_it_can_be() -> None:
    raw = yaml.safe_load(SAMPLE.read_text())
    plain = Settings()
    given = Settings(**raw)
    for section in ("defaults", "plan", "podrunner", "policy", "spank", "listen", "node"):
        assert getattr(given, section) == getattr(plain, section), section


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, "")) == Settings()


def test_frozen() -> None:
    with pytest.raises(ValueError):
        load(SAMPLE).slurm.pool = 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slrm: {}", "slrm: unknown key; did you mean slurm?"),
        ("slurm: {pol: 3}", "slurm.pol: unknown key; did you mean pool?"),
        ("slurm: {timeouts: {connect: 3}}", "slurm.timeouts.connect: unknown key; did you mean connect_s?"),
        ("identity: {map: [{namespace: a, usr: b}]}", "identity.map.0.usr: unknown key; did you mean user?"),
        ("plan: {zzz: 1}", "plan.zzz: unknown key; known here: delivery"),
        ("1: 2", "1: unknown key"),
        ("slurm: {pool: many}", "slurm.pool"),
        ("slurm: {pool: 0}", "slurm.pool"),
        ("slurm: {pool: 65}", "slurm.pool"),
        ("slurm: []", "slurm: a map of keys is needed"),
        ("slurm: {endpoints: http://x}", "slurm.endpoints: a list is needed"),
        ("slurm: {endpoints: [ftp://x]}", "slurm.endpoints.0: an endpoint is http://HOST:PORT"),
        ("slurm: {endpoints: [http://]}", "slurm.endpoints.0"),
        ("slurm: {endpoints: [unix://relative]}", "slurm.endpoints.0"),
        ("slurm: {api_version: v42}", "slurm.api_version"),
        ("slurm: {token: {source: guess}}", "slurm.token.source"),
        ("slurm: {timeouts: {read_s: 0}}", "slurm.timeouts.read_s"),
        ("identity: {map: [{namespace: a}]}", "identity.map.0.user: Field required"),
        ("identity: {run_as_user: maybe}", "identity.run_as_user"),
        ("identity: {run_as_user: map}", "identity.run_as_user: 'map' is not carried yet"),
        ("defaults: {time_limit: 60}", "defaults.time_limit: must be a duration"),
        ("defaults: {time_limit: soon}", "defaults.time_limit: 'soon' is not a duration"),
        ("defaults: {memory: lots}", "defaults.memory: 'lots' is not a quantity"),
        ("defaults: {cpus: 0}", "defaults.cpus"),
        ("gpu: {resources: {nvidia.com/gpu: 5}}", "gpu.resources.nvidia.com/gpu"),
        ("plan: {delivery: post}", "plan.delivery"),
        ("podrunner: {python: 'python3; rm'}", "podrunner.python"),
        ("spank: {events: 127.0.0.1:6825}", "spank.events: the address of events is http://HOST:PORT/PATH"),
        ("spank: {events: http://h/p}", "spank.events"),
        ("spank: {events: http://h:0/p}", "spank.events"),
        ("spank: {events: 'http://h:1/a b'}", "spank.events"),
        ("spank: {events: https://h:1/p}", "spank.events"),
        ("spank: {events: 'http://h:1/p?q=1'}", "spank.events: the address of events"),
        ("spank: {events: unix://relative}", "spank.events"),
        ("spank: {enabled: perhaps}", "spank.enabled"),
        ("slurm: {poll_s: 0}", "slurm.poll_s"),
        ("cluster: a b", "cluster"),
        ("shared_dir: 5", "shared_dir"),
        ("cluster: a\ncluster: b", "'cluster' is given twice, line 2"),
        ("slurm: {pool: 3, pool: 4}", "'pool' is given twice"),
        ("[1, 2]", "the top level must be a map"),
        ("slurm: [", "is not YAML"),
        ("slurm: {pool: " + "9" * 5000 + "}", "is not YAML"),
    ],
)
def test_an_error_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    assert words in error(tmp_path, text)


@pytest.mark.parametrize(
    "address",
    ["http://10.0.0.1:6825/spank/v1/events", "http://[::1]:80/e", "http://head:80", "unix:///run/sra.sock"],
)
def test_where_events_may_be_posted(tmp_path: Path, address: str) -> None:
    assert load(written(tmp_path, f"spank: {{events: '{address}'}}")).spank.events == address


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml does not exist"):
        load(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin").write_bytes(b"cluster: \xe9")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "latin")


def test_the_file_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMREST_CONFIG", str(written(tmp_path, "cluster: named")))
    assert load().cluster == "named"
    (tmp_path / "other").write_text("cluster: asked")
    assert load(tmp_path / "other").cluster == "asked"
    monkeypatch.setenv("SLURMREST_CONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        load()


def test_without_any_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmrest_adapter.config.DEFAULT_PATH", tmp_path / "nowhere")
    assert load() == Settings()
    monkeypatch.setattr("slurmrest_adapter.config.DEFAULT_PATH", written(tmp_path, "cluster: etc"))
    assert load().cluster == "etc"


def test_the_environment_overrides_single_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "slurm: {pool: 3, service_user: svc, token: {source: hs256, lifetime_s: 60}}")
    monkeypatch.setenv("SLURMREST_SLURM__POOL", "5")
    monkeypatch.setenv("SLURMREST_SLURM__TOKEN__LIFETIME_S", "70")
    monkeypatch.setenv("SLURMREST_SLURM__ENDPOINTS", '["unix:///run/rest.sock"]')
    monkeypatch.setenv("SLURMREST_CLUSTER", "env")
    settings = load(path)
    assert (settings.slurm.pool, settings.slurm.service_user, settings.cluster) == (5, "svc", "env")
    assert (settings.slurm.token.source, settings.slurm.token.lifetime_s) == ("hs256", 70)
    assert settings.slurm.endpoints == ("unix:///run/rest.sock",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SLURMREST_SLRM__POOL", "4", "no configuration key; did you mean SLURMREST_SLURM?"),
        ("SLURMREST_SLURM__POL", "4", "slurm.pol: unknown key; did you mean pool?"),
        ("SLURMREST_SLURM__POOL", "many", "slurm.pool"),
        ("SLURMREST_SLURM__ENDPOINTS", "http://x", "SLURMREST_SLURM__ENDPOINTS: lists and maps"),
        ("SLURMREST_SLURM", "x", "SLURMREST_SLURM: lists and maps"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    assert words in error(tmp_path, "")


def test_a_token_is_in_no_repr_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3cr3t" not in repr(load(written(tmp_path, "slurm: {token: {source: static, token: s3cr3t}}")))
    assert "s3cr3t" not in error(tmp_path, "slurm: {token: {source: guess, token: s3cr3t}}")
    assert "s3cr3t" not in error(tmp_path, "slurm: {token: {tokn: s3cr3t}}")
    assert "s3cr3t" not in error(tmp_path, "slurm: {token: {token: [s3cr3t]}}")
    monkeypatch.setenv("SLURMREST_SLURM__TOKEN", "s3cr3t")
    assert "s3cr3t" not in error(tmp_path, "")

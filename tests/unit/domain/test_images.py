"""Image references: the grammar, what a runtime gets, and the pull policy nobody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.images import ImageRef, default_pull_policy, parse

pytestmark = pytest.mark.unit

HEX = "0123456789abcdef" * 4
SHA = f"sha256:{HEX}"
FIELD = "spec.containers[0].image"


@pytest.mark.parametrize(
    ("text", "expected", "runtime"),
    [
        ("busybox", ImageRef("docker", "docker.io", "library/busybox"), "docker://docker.io/library/busybox:latest"),
        ("lab/busybox:1", ImageRef("docker", "docker.io", "lab/busybox", "1"), "docker://docker.io/lab/busybox:1"),
        (
            "127.0.0.1:5000/lab/busybox:1",
            ImageRef("docker", "127.0.0.1:5000", "lab/busybox", "1"),
            "docker://127.0.0.1:5000/lab/busybox:1",
        ),
        ("localhost/x", ImageRef("docker", "localhost", "x"), "docker://localhost/x:latest"),
        ("localhost:5000/x", ImageRef("docker", "localhost:5000", "x"), "docker://localhost:5000/x:latest"),
        ("busybox:5000", ImageRef("docker", "docker.io", "library/busybox", "5000"), None),
        ("docker.io/busybox", ImageRef("docker", "docker.io", "library/busybox"), None),
        ("index.docker.io/busybox", ImageRef("docker", "docker.io", "library/busybox"), None),
        ("r.example/a/b/c_d__e--f", ImageRef("docker", "r.example", "a/b/c_d__e--f"), None),
        ("[::1]:5000/x:1", ImageRef("docker", "[::1]:5000", "x", "1"), "docker://[::1]:5000/x:1"),
        (f"r.example/x@{SHA}", ImageRef("docker", "r.example", "x", None, SHA), f"docker://r.example/x@{SHA}"),
        (f"r.example/x:1@{SHA}", ImageRef("docker", "r.example", "x", "1", SHA), f"docker://r.example/x@{SHA}"),
        ("docker://r.example/x:1", ImageRef("docker", "r.example", "x", "1"), "docker://r.example/x:1"),
        ("docker://docker://r.example/x:1", ImageRef("docker", "r.example", "x", "1"), "docker://r.example/x:1"),
        ("docker://busybox", ImageRef("docker", "docker.io", "library/busybox"), None),
        ("oras://r.example:443/sif/x:1", ImageRef("oras", "r.example:443", "sif/x", "1"), "oras://r.example:443/sif/x:1"),
        ("/images/a b.sif", ImageRef("path", "", "/images/a b.sif"), "/images/a b.sif"),
        ("/images//x/./y.sqsh", ImageRef("path", "", "/images/x/y.sqsh"), "/images/x/y.sqsh"),
        ("/images/rootfs/", ImageRef("path", "", "/images/rootfs"), "/images/rootfs"),
    ],
)  # fmt: skip
def test_reads(text: str, expected: ImageRef, runtime: str | None) -> None:
    image = parse(text, FIELD)
    assert image == expected
    if runtime is not None:
        assert image.runtime_ref() == runtime


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "busybox ",
        "Busybox",
        "a//b",
        "/",
        "/a/../b",
        "a/",
        ":1",
        "x:",
        "x:-1",
        "x:" + "t" * 129,
        "x@",
        "x@sha256:12",
        f"x@sha256:{HEX.upper()}",
        "x@" + SHA + "0",
        "r.example:port/x",
        "-r.example/x",
        "docker:///images/x.sif",
        "docker://",
        "docker://oras://r.example/x",
        "oras://x",
        "a\nb",
        "a\x00b",
        "./x.sif",
        "$(id)",
        "`id`",
        "x;y",
        "--help",
        "é",
        "r.example/" + "a" * 255,
        "/" + "a" * 4096,
        None,
        7,
        [],
        {},
    ],
)
def test_what_is_no_image_names_the_field(text: object) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text, FIELD)
    assert caught.value.field == FIELD
    assert "\n" not in str(caught.value)


def test_upper_case_is_explained() -> None:
    with pytest.raises(Invalid, match="lower case"):
        parse("r.example/Lab/x", FIELD)


@pytest.mark.parametrize(
    "text", ["library://a/b/c", "shub://a/b", "http://r.example/x", "docker-archive://x"]
)
def test_other_transports_are_refused_by_name(text: str) -> None:
    with pytest.raises(Unsupported, match=text.split("://")[0]):
        parse(text, FIELD)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        (f"busybox:latest@{SHA}", "Always"),
        ("busybox:1", "IfNotPresent"),
        (f"busybox@{SHA}", "IfNotPresent"),
        ("oras://r.example/x", "Always"),
        ("/images/x.sif", "IfNotPresent"),
    ],
)
def test_default_pull_policy(text: str, policy: str) -> None:
    assert default_pull_policy(parse(text, FIELD)) == policy


words = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.sampled_from(["docker", "oras"]),
    st.sampled_from(["localhost", "127.0.0.1:5000", "r.example", "registry:443"]),
    st.lists(words, min_size=1, max_size=4),
    st.one_of(st.none(), st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)),
    st.one_of(st.none(), st.just(SHA)),
)
def test_what_is_written_comes_back(
    transport: str, registry: str, path: list[str], tag: str | None, digest: str | None
) -> None:
    name = "/".join(path)
    text = f"{transport}://{registry}/{name}" + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    image = parse(text, FIELD)
    assert image == ImageRef(transport, registry, name, tag, digest)
    again = parse(image.runtime_ref(), FIELD)
    assert again.runtime_ref() == image.runtime_ref()


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_an_image_or_a_named_error(text: str) -> None:
    try:
        ref = parse(text, FIELD).runtime_ref()
    except PodError as error:
        outcome = error.field
    else:
        assert parse(ref, FIELD).runtime_ref() == ref
        outcome = ref
    assert outcome.startswith((FIELD, "docker://", "oras://", "/"))

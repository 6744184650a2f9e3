"""The control plane: built once from Debian's source package, kept packed in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from ..labkit.debian import Apt, unpack
from ..labkit.places import cache_dir, locked, remove_tree
from ..labkit.report import LabError, say
from . import recipe, sidecar

ARTIFACT = "control-plane.tar.zst"
_HINT = "the build needs 3 GB of disk and 1 GB of memory; then run it again"


def build_key() -> str:
    """Return the hash of all that goes into the build, apart from the day's package versions."""
    edits = [(e.path, e.within, e.old, e.new) for e in sidecar.EDITS]
    parts = [
        recipe.RECIPE,
        recipe.SUITE,
        recipe.SOURCE,
        recipe.PACKAGES,
        recipe.BUILT,
        edits,
        os.uname().machine,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def packed_control_plane() -> Path:
    """Return the packed programs, building them if the cache has none.

    If they cannot be built, the last good ones of an older recipe are used and this is said.
    """
    path = cache_dir() / "kube" / build_key() / ARTIFACT
    with locked(f"kube-{build_key()}"):
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        older = sorted(path.parent.parent.glob(f"*/{ARTIFACT}"), key=os.path.getmtime)
        try:
            _make(path)
        except LabError as error:
            if not older:
                raise
            say(f"the control plane could not be built, taking the last good one, {older[-1]}: {error}")
            return older[-1]
        return path


def _make(path: Path) -> None:
    """Fetch, patch, compile, pack."""
    for leftover in path.parent.glob("work.*"):  # of a run that was killed
        remove_tree(leftover)
    work = path.parent / f"work.{os.getpid()}"
    work.mkdir()
    try:
        say(f"building Kubernetes from Debian {recipe.SUITE}'s source (some minutes, once)")
        apt = Apt(work / "apt", recipe.SUITE, sources=True)
        unpack(apt.download(*recipe.PACKAGES), work / "root")
        description = apt.source(recipe.SOURCE)
        version = _upstream_version(description)
        source = work / "go/src/k8s.io/kubernetes"  # where GOPATH mode looks for it
        source.parent.mkdir(parents=True)
        command = ["dpkg-source", "--no-check", "-x", str(description), str(source)]  # apt has checked it
        _run(command, work, path.parent / "source.log", {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
        say(f"source of Kubernetes {version}")
        _replace_reflect2(source, work / "root")
        sidecar.apply(source)
        _compile(source, work, version, path.parent)
        shutil.copy(work / "root/usr/bin/etcd", work / "bin/etcd")
        (work / "bin/version").write_text(version + "\n")
        fresh = path.with_suffix(f".new.{os.getpid()}")
        pack = ["tar", "--zstd", "--owner=0", "--group=0", "-cf", str(fresh), *recipe.PROGRAMS, "version"]
        threads = {**os.environ, "ZSTD_CLEVEL": "6", "ZSTD_NBTHREADS": "0"}
        subprocess.run(pack, cwd=work / "bin", check=True, env=threads)
        fresh.rename(path)
        say(f"packed {path} ({path.stat().st_size // 1000000} MB)")
    finally:
        remove_tree(work)


def _upstream_version(description: Path) -> str:
    """Return Kubernetes's own version, such as 1.20.2, from a .dsc (Debian writes 1.20.5+really1.20.2-1)."""
    found = re.search(r"^Version: (?:.*\+really)?(\d+\.\d+\.\d+)", description.read_text(), re.MULTILINE)
    if not found:
        raise LabError(f"{description.name}: no version in it")
    if not found[1].startswith("1.20."):
        raise LabError(f"Debian {recipe.SUITE} has moved on: it has Kubernetes {found[1]}, not 1.20")
    return found[1]


def _replace_reflect2(source: Path, root: Path) -> None:
    """Take Debian's reflect2: the vendored 1.0.1 breaks at run time with Go 1.18 and later, JSON with it."""
    vendored = source / "vendor/github.com/modern-go/reflect2"
    for old in (*vendored.glob("*.go"), *vendored.glob("*.s")):
        old.unlink()
    packaged = root / "usr/share/gocode/src/github.com/modern-go/reflect2"
    for new in (*packaged.glob("*.go"), *packaged.glob("*.s")):
        if not new.name.endswith("_test.go"):
            shutil.copy(new, vendored)


def _compile(source: Path, work: Path, version: str, logs: Path) -> None:
    """Compile the programs into work/bin."""
    goroot = work / "root" / recipe.GOROOT
    go = str(goroot / "bin/go")
    env = {
        "GOROOT": str(goroot),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "gocache"),
        "GOTMPDIR": str(work),
        "GO111MODULE": "off",
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
        "HOME": str(work),
        "PATH": f"{goroot / 'bin'}:/usr/bin:/bin",  # this Go before any other: the generators call it
        "LC_ALL": "C",
    }
    log = logs / "build.log"
    log.unlink(missing_ok=True)
    # The OpenAPI definitions are generated code that the source package does not ship.
    generator = work / "openapi-gen"
    _run(
        [go, "build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"], source, log, env
    )
    command = [
        *(str(generator), "-O", "zz_generated.openapi", "--output-base", str(work / "go/src")),
        *("-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"),
        *("-p", "k8s.io/kubernetes/pkg/generated/openapi", "-r", str(work / "violations")),
        *("-i", ",".join(_openapi_packages(source))),
    ]
    _run(command, source, log, env)
    say("OpenAPI definitions generated; compiling")
    command = [
        *(go, "build", "-v", "-tags", "providerless", "-trimpath", "-ldflags", _ldflags(version)),
        *("-o", str(work / "bin") + "/", *(f"./cmd/{name}" for name in recipe.BUILT)),
    ]
    _run(command, source, log, env, counting="packages compiled")


def _openapi_packages(source: Path) -> list[str]:
    """Return the Go packages that ask for OpenAPI definitions, as Kubernetes' own Makefile finds them."""
    roots = {"staging/src/k8s.io": "k8s.io/kubernetes/vendor/k8s.io", "pkg": "", "cmd": ""}
    skipped = {"code-generator", "sample-apiserver", "testdata"}
    found = set()
    for root, prefix in roots.items():
        for file in (source / root).rglob("*.go"):
            inner = file.relative_to(source / root)
            skipped = {"code-generator", "sample-apiserver", "testdata"} & set(inner.parts)
            if (
                not skipped
                and not file.name.endswith("_test.go")
                and b"+k8s:openapi-gen=" in file.read_bytes()
            ):
                found.add(f"{prefix or 'k8s.io/kubernetes/' + root}/{inner.parent}")
    return sorted(found)


def _ldflags(version: str) -> str:
    """Return the linker's options: no debug information, and the version that the programs report."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    flags = ["-s", "-w"]
    for package in ("client-go/pkg/version", "component-base/version"):
        flags += [f"-X k8s.io/kubernetes/vendor/k8s.io/{package}.{k}={v}" for k, v in values.items()]
    return " ".join(flags)


def _run(command: list[str], cwd: Path, log: Path, env: dict[str, str], *, counting: str = "") -> None:
    """Run a step, its output in `log`; with `counting`, say every half minute how many lines that is."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=30)
                    break
                except subprocess.TimeoutExpired:
                    if counting:
                        say(f"{len(log.read_bytes().splitlines())} {counting}")
        finally:
            if process.poll() is None:  # we were interrupted
                process.terminate()
                process.wait()
    if code:
        raise LabError(f"{Path(command[0]).name} {command[1]} failed (exit {code})", log=log, hint=_HINT)

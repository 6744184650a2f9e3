"""scripts/generate-client [--check] [--version V]: make generated_client/ from openapi/, or compare."""

import argparse
import difflib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .data import Data, Version, load
from .errors import GenerateError
from .package import build, install

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: written, or no difference; 1: --check found a difference; 2: it cannot be generated."""
    parser = argparse.ArgumentParser(prog="generate-client", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with a diff if it differs"
    )
    parser.add_argument("--version", action="append", metavar="V", help="only this version, such as v0.0.42")
    args = parser.parse_args(argv)
    try:
        data = load(ROOT / "openapi")
        versions = _select(data, args.version)
        with tempfile.TemporaryDirectory() as directory:
            built = Path(directory) / "generated_client"
            build(ROOT, data, versions, built)
            if args.check:
                return _check(built, ROOT / "generated_client", versions, whole=args.version is None)
            install(built, ROOT / "generated_client", versions, list(data.versions))
    except GenerateError as error:
        print(f"generate-client: {error}", file=sys.stderr)
        return 2
    print("generated_client: " + ", ".join(version.package for version in versions))
    return 0


def _select(data: Data, names: list[str] | None) -> list[Version]:
    if names is None:
        return list(data.versions)
    by_name = {version.name: version for version in data.versions}
    for name in names:
        if name not in by_name:
            raise GenerateError(f"versions.toml has no {name}; it has {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _check(built: Path, committed: Path, versions: list[Version], *, whole: bool) -> int:
    """Compare file by file. `whole` also finds files that nothing generates."""
    names = {version.package for version in versions}
    differences = 0
    for name in sorted(_files(built) | _files(committed)):
        top = name.partition("/")[0]
        if not whole and "/" in name and top not in names:
            continue
        for line in _diff(committed / name, built / name, name):
            differences += 1
            print(line)
    if differences:
        print("generate-client: generated_client differs from what openapi/ says", file=sys.stderr)
    return 1 if differences else 0


def _files(directory: Path) -> set[str]:
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _diff(old: Path, new: Path, name: str) -> Iterator[str]:
    before = old.read_text(encoding="utf-8").splitlines() if old.exists() else []
    after = new.read_text(encoding="utf-8").splitlines() if new.exists() else []
    if not old.exists() or not new.exists():
        yield f"{'missing' if new.exists() else 'not generated'}: generated_client/{name}"
    yield from difflib.unified_diff(before, after, f"committed/{name}", f"generated/{name}", lineterm="")

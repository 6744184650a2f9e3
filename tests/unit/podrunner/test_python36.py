"""The runner keeps to Python 3.6 and its standard library, shown four ways."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import slurmrest_adapter
from slurmrest_adapter import podrunner
from slurmrest_adapter.runtimes.script import PACKAGE, job_script, sources

ROOT = Path(slurmrest_adapter.__file__).parents[1]
RUNNER = ROOT / "slurmrest_adapter" / "podrunner"
FILES = sorted(RUNNER.glob("*.py"))
# The unittest modules beside this file, which the oldest Python runs.
TESTS = sorted(Path(__file__).parent.glob("test_podrunner_*.py"))
# What the runner may import; a new name here is a decision, since a minimal Python may lack it.
ALLOWED = {
    "base64", "binascii", "bz2", "collections", "contextlib", "ctypes", "errno", "fcntl", "hashlib", "heapq",
    "json", "marshal", "os", "re", "selectors", "shutil", "signal", "socket", "stat", "struct", "subprocess",
    "sys", "time", "traceback", "typing", "urllib",
}  # fmt: skip


def test_versions_agree() -> None:
    assert podrunner.VERSION == slurmrest_adapter.__version__


def test_vermin() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import vermin; vermin.main()",
            "--no-tips",
            "--violations",
            "-t=3.6-",
            *map(str, FILES),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*FILES, *TESTS], ids=lambda path: path.name)
def test_parses_as_3_6(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 6))


class Untyped(ast.NodeTransformer):
    """Takes away what only type checkers read; a class of named fields keeps only its methods here."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        named = node.module == "light" and [alias.name for alias in node.names] == ["named"]
        return None if node.module == "typing" or named else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if re.match(r"NamedTuple$|named\(", " ".join(map(ast.unparse, node.bases))):
            node.bases = []
            node.body = [one for one in node.body if not isinstance(one, ast.Assign | ast.AnnAssign)]
        return self.generic_visit(node)


def program(text: str) -> str:
    """What the source does and on which lines, whatever its docstrings, comments and types say."""
    tree = ast.parse(text, feature_version=(3, 6))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            del node.body[0]
    tree = Untyped().visit(tree)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return ast.dump(tree) + str([node.lineno for node in statements])


def test_packed_sources_are_the_files_and_parse_as_3_6() -> None:
    packed = sources()
    names = {f"{PACKAGE}.{path.stem}" if path.stem != "__init__" else PACKAGE: path for path in FILES}
    assert packed.keys() == names.keys()
    for name, text in packed.items():
        assert program(text) == program(names[name].read_text())
        assert not re.search(r"\bimport typing|from typing\b|NamedTuple", text), name


def fields(module: types.ModuleType) -> dict[str, object]:
    """The module's own classes of named fields: the fields, and a value with the defaults, printed."""
    found: dict[str, object] = {}
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, tuple) and kind.__module__ == module.__name__:
            names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
            given = names[: len(names) - len(kind.__new__.__defaults__ or ())]
            made = kind(**dict.fromkeys(given))
            assert not hasattr(made, "__dict__")
            found[name] = repr(made)
    return found


def test_packed_named_fields_are_the_same(tmp_path: Path) -> None:
    package = tmp_path / "packed_runner"
    package.mkdir()
    for name, text in sources().items():
        (package / f"{name.partition('.')[2] or '__init__'}.py").write_text(text)
    sys.path.insert(0, str(tmp_path))
    try:
        seen = 0
        for path in FILES:
            packed = fields(importlib.import_module(f"packed_runner.{path.stem}"))
            assert packed == fields(importlib.import_module(f"slurmrest_adapter.podrunner.{path.stem}"))
            seen += len(packed)
    finally:
        sys.path.remove(str(tmp_path))
        for name in [name for name in sys.modules if name.startswith("packed_runner")]:
            del sys.modules[name]
    assert seen > 10


def test_what_stays_in_memory(tmp_path: Path) -> None:
    """Modules that are large stay out of the process that lives as long as the pod."""
    start, look = "\nentry()'", '\nprint("\\n".join(sys.modules))\''
    script = job_script(sys.executable)
    assert script.count(start) == 1
    file = tmp_path / "script"
    file.write_text(script.replace(start, look))
    done = subprocess.run(["/bin/sh", file], env={"PATH": os.defpath}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert f"{PACKAGE}.supervisor" in loaded
    assert not loaded & {"typing", "contextlib", "re", "json", "subprocess", "urllib", "socket", "traceback"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    own = {file.stem for file in FILES} | {"VERSION"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
            assert names <= ALLOWED
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                # Inside the package only, by relative imports: they work in the packed form too.
                assert node.level == 1
                assert {node.module} <= own if node.module else {alias.name for alias in node.names} <= own
            else:
                assert (node.module or "").split(".")[0] in ALLOWED


@functools.cache
def oldest_python() -> Path | None:
    """The oldest Python of 3.6 or newer on this machine that runs."""
    found: dict[tuple[int, int], Path] = {}
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = shutil.which("pyenv")
    homes = [Path(os.environ["PYENV_ROOT"])] if "PYENV_ROOT" in os.environ else []
    homes += [Path(pyenv).resolve().parents[1]] if pyenv else []
    homes += [folder.parent for folder in folders if folder.name == "shims"]
    for home in homes:
        folders += (home / "versions").glob("*/bin")
    for folder in folders:
        if not folder.is_dir() or not os.access(folder, os.R_OK):
            continue
        for path in folder.glob("python3.*"):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            if match and int(match[1]) >= 6:
                version = (3, int(match[1]))
                # A shim of a version that is not installed exists, but does not run.
                done = subprocess.run([path, "-c", "import bz2, ctypes"], capture_output=True)
                if done.returncode == 0:
                    found.setdefault(version, path)
    return found[min(found)] if found else None


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_unit_tests_under_the_oldest_python(path: Path) -> None:
    python = oldest_python()
    assert python is not None, "no python3.X of 3.6 or newer runs here"
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    done = subprocess.run(
        [python, "-B", "-m", "unittest", module], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"{python}\n{done.stderr}"
    ran = re.search(r"Ran (\d+) tests?", done.stderr)
    assert ran is not None
    assert int(ran[1]) > 0

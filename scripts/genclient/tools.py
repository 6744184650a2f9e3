"""The pinned tools: openapi-python-client and ruff, run as programs of this Python."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .errors import GenerateError
from .spec import Json

# The templates are tied to the generator's exact version, the formatting to ruff's.
PINNED = {"openapi-python-client": "0.29.1", "ruff": "0.17.6"}
LINE_LENGTH = "110"
# I: sort imports, F401: drop unused ones (types keep theirs by name), UP: modern syntax.
LINT_RULES = "I,F401,UP"
TEMPLATES = Path(__file__).resolve().parent / "templates"


def check_tools() -> None:
    """Raise GenerateError naming each pinned tool that is missing or of another version."""
    problems: list[str] = []
    for name, wanted in PINNED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            problems.append(f"{name}=={wanted} is not installed for {sys.executable}")
            continue
        if found != wanted:
            problems.append(f"{name} is {found}, pinned is {wanted}")
    if problems:
        raise GenerateError("; ".join(problems) + " (install the project's extra: dev)")


def run_generator(spec: Json, target: Path, work: Path) -> None:
    """Write the package for `spec` into the new directory `target`. A warning, a lost model, is an error."""
    document, config = work / "spec.json", work / "config.json"
    document.write_text(json.dumps(spec), encoding="utf-8")
    config.write_text(json.dumps({"post_hooks": []}), encoding="utf-8")
    _run(
        "openapi_python_client",
        "generate",
        f"--path={document}",
        f"--config={config}",
        f"--custom-template-path={TEMPLATES}",
        f"--output-path={target}",
        "--meta=none",
        "--fail-on-warning",
    )


def format_package(target: Path) -> None:
    """Sort, prune and format the generated files, independent of any configuration around them."""
    common = ["--isolated", "--no-cache", f"--line-length={LINE_LENGTH}", "--target-version=py311"]
    _run("ruff", "check", *common, "--quiet", "--fix", f"--select={LINT_RULES}", str(target))
    _run("ruff", "format", "--quiet", *common, str(target))


def _run(module: str, *args: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GenerateError(f"{module} failed:\n{done.stdout}{done.stderr}")

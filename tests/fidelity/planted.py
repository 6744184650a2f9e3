"""Bugs of one line that the rows must find: each one that somebody could make, and its rows.

A suite that is green proves little until it is seen to turn red. Each bug is planted in a copy of
the tree, never in the tree itself, and its rows, and no row of another group, must see it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

# What the suite and the daemons need of the tree.
_PARTS = ("slurmrest_adapter", "vk_provider", "generated_client", "scripts", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Bug:
    """One line that is changed: `old` occurs once in `file`; `rows` are the ids that must see it."""

    name: str
    file: str
    old: str
    new: str
    rows: frozenset[str]

    def in_text(self, text: str) -> str:
        """A file's text with the bug in it; raises AssertionError if there is no one place for it."""
        assert text.count(self.old) == 1, (
            f"{self.name}: {self.file} has its line {text.count(self.old)} times"
        )
        return text.replace(self.old, self.new)

    def copy(self, root: Path, target: Path) -> None:
        """Copy the tree at `root` to `target` with the bug in it."""
        for part in _PARTS:
            if (root / part).is_dir():
                shutil.copytree(root / part, target / part)
            else:
                shutil.copy2(root / part, target / part)
        path = target / self.file
        path.write_text(self.in_text(path.read_text(encoding="utf-8")), encoding="utf-8")


def _bug(name: str, file: str, old: str, new: str, rows: str) -> Bug:
    return Bug(name, file, old, new, frozenset(rows.split()))


BUGS = (
    _bug(
        "args follow CMD instead of replacing it",
        "slurmrest_adapter/podrunner/container.py",
        "argv = list(entrypoint) + list(args if args else cmd)",
        "argv = list(entrypoint) + list(cmd) + list(args or [])",
        "R005",
    ),
    _bug(
        "a variable does not see those before it",
        "slurmrest_adapter/domain/expand.py",
        "known[name] = text(written, known)",
        "known[name] = text(written, {})",
        "R016",
    ),
    _bug(
        "defaultMode is looked at and forgotten",
        "slurmrest_adapter/translate/volume_files.py",
        'default = mode_of(source.get("defaultMode"), f"{where}.defaultMode", DEFAULT_MODE)',
        'default = mode_of(None, f"{where}.defaultMode", DEFAULT_MODE)',
        "R031 R057 R067 R079 R093 R099",
    ),
    _bug(
        "a projected volume has its first source only",
        "vk_provider/volumes.py",
        "if sources is None else sources:",
        "if sources is None else sources[:1]:",
        "R076",
    ),
    _bug(
        "an empty directory has the mode that a umask leaves",
        "slurmrest_adapter/podrunner/volumes.py",
        "os.chmod(path, _OPEN)",
        "os.chmod(path, _OPEN & ~0o022)",
        "R121 R122",
    ),
    _bug(
        "medium: Memory lies on disk",
        "slurmrest_adapter/translate/volumes.py",
        "return VolumePlan(name, None, medium, size)",
        'return VolumePlan(name, None, "", size)',
        "R112 R113 R114 R118 R119 R120 R122",
    ),
    _bug(
        "an absolute subPathExpr is made relative",
        "slurmrest_adapter/domain/subpath.py",
        'raise Invalid(where, f"{path!r} must be relative")',
        'path = path.lstrip("/")',
        "R131",
    ),
    _bug(
        "a failure is called Completed",
        "slurmrest_adapter/podrunner/runner.py",
        '"Completed" if ended.code == 0 else "Error"',
        '"Completed" if ended.code is not None else "Error"',
        "R001",
    ),
    _bug(
        "the log stands for an empty message of a success too",
        "slurmrest_adapter/podrunner/runner.py",
        "fallback = ended.code != 0 and self.container.message_policy == message.FROM_LOGS",
        "fallback = self.container.message_policy == message.FROM_LOGS",
        "R144",
    ),
    _bug(
        "the first sidecar ends first",
        "slurmrest_adapter/podrunner/supervisor.py",
        "[life for life in self._sidecars if life.live][-1:]",
        "[life for life in self._sidecars if life.live][:1]",
        "N31",
    ),
)

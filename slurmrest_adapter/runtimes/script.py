"""Pack the pod runner into the batch script, the same bytes for every pod.

The script holds nothing of a pod: `scontrol write batch_script` and slurmdbd (job_script) may show it.
The sources travel compressed in a here-document, not in argv, which every user of the node can read; or
they lie on the nodes already, where the site has put them (``podrunner.path``), and the script is short.
`exec` makes the runner the batch process itself, which is whom Slurm signals and whose end is the
job's. An importer of a few lines gives the modules back under their package's name.
"""

from __future__ import annotations

import ast
import base64
import bz2
import functools
import hashlib
import io
import shlex
import tokenize
from importlib import resources

from slurmrest_adapter.domain.errors import ConfigError

PACKAGE = "podrunner"
_INDENT = 4  # spaces of a step in the sources; one is enough in the script
LIMIT = 40_000  # bytes; Slurm takes 4 MiB, but each job's script is kept

_IMPORTER_NAME = "importer"

# Python 2 must be able to parse this, so that it can say that it is too old. No single quotes: it stands
# between them in the script. The payload is on descriptor 9. A child unpacks and compiles it: what that
# takes would stay in the runner's memory.
_BOOT = f"""
import sys
if sys.version_info < (3, 6):
    sys.exit("the pod runner needs Python 3.6 or newer; %s is %s" % (sys.executable, sys.version.split()[0]))
import marshal, os
with os.fdopen(9, "rb") as stream:
    packed = stream.read().replace(b"\\n", b"")
def unpack():
    try:
        import base64, bz2
    except ImportError:
        sys.exit("the pod runner needs Python with its bz2 module, which %s lacks" % sys.executable)
{{look}}    modules = bz2.decompress(base64.b85decode(packed)).decode("utf-8").split("\\0")
    return dict(module.split("\\n", 1) for module in modules)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    made = dict()
    for name, text in unpack().items():
        made[name] = marshal.dumps(compile(text, name.replace(".", "/") + ".py", "exec"))
    with os.fdopen(writer, "wb") as stream:
        marshal.dump(made, stream)
    os._exit(0)
os.close(writer)
with os.fdopen(reader, "rb") as stream:
    made = stream.read()
os.waitpid(child, 0)
if not made:
    sys.exit(1)
made = marshal.loads(made)
exec(marshal.loads(made["{_IMPORTER_NAME}"]))
from {PACKAGE}.main import entry
entry()
""".strip()

# Of one that lies on the node; its digest is the program's argument.
_LOOK = """\
    import hashlib
    if hashlib.sha256(packed).hexdigest() != sys.argv[1]:
        sys.exit("podrunner.path: the pod runner there is of another release: install it anew")
"""

# The part of it that can be compressed with the modules.
_IMPORTER = f"""
class Importer(object):
    def find_spec(self, name, path=None, target=None):
        if name in made:
            return type(sys.__spec__)(name, self, is_package=name == "{PACKAGE}")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(marshal.loads(made[module.__name__]), module.__dict__)
    def get_source(self, name):
        return unpack()[name]
sys.meta_path.insert(0, Importer())
""".strip()

_SCRIPT = """\
#!/bin/sh
# slurmrest-adapter's pod runner. The pod's own text is not here.
umask 077
cd /
exec </dev/null
if [ -d "${{SRA_POD_DIR:-}}" ]; then exec >>"$SRA_POD_DIR/runner.log" 2>&1; fi
python={python}
if ! command -v "$python" >/dev/null 2>&1; then
  for python in python3 /usr/bin/python3 /usr/libexec/platform-python; do
    if command -v "$python" >/dev/null 2>&1; then break; fi
  done
fi
if ! command -v "$python" >/dev/null 2>&1; then
  echo "the pod runner needs Python 3.6 or newer, but this node has no "{python} >&2
  exit 125
fi
{check}exec "$python" -I -S -c '{boot}' {source}
"""

_INSTALLED = """\
if ! [ -r {path} ]; then
  echo "podrunner.path: the pod runner is not there on this node: "{path} >&2
  exit 125
fi
"""


def sources() -> dict[str, str]:
    """The runner's modules as they are packed, by the names they have there."""
    found = {}
    for item in resources.files("slurmrest_adapter").joinpath("podrunner").iterdir():
        if item.name.endswith(".py"):
            name = PACKAGE if item.name == "__init__.py" else f"{PACKAGE}.{item.name.removesuffix('.py')}"
            found[name] = bare(item.read_text(encoding="utf-8"))
    return found


def bare(text: str) -> str:
    """Python source without docstrings, comments and types, hardly indented.

    They are half of what the script would weigh, and `typing` a part of the runner's memory. Every
    statement stays on its own line, so that tracebacks tell true.
    """
    lines = text.split("\n")
    inside: set[int] = set()  # lines that begin within a string
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip()
        elif token.type == tokenize.STRING:
            inside.update(range(row + 1, token.end[0] + 1))
    tree = ast.parse(text)
    for first, last, instead in sorted(_types(tree), reverse=True):
        _replace(lines, first, last, instead)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            docstring = node.body[0]
            end = docstring.end_lineno or docstring.lineno
            lines[docstring.lineno - 1 : end] = [" " * docstring.col_offset + '""'] + [""] * (
                end - docstring.lineno
            )
            inside.difference_update(range(docstring.lineno, end + 1))
    return "\n".join(
        line if number in inside else " " * ((len(line) - len(line.lstrip())) // _INDENT) + line.lstrip()
        for number, line in enumerate(lines, 1)
    )


Position = tuple[int, int]  # line and byte in it


Change = tuple[Position, Position, str]  # from, to, and what stands there instead


def _types(tree: ast.Module) -> list[Change]:
    """What only type checkers need, with the sign before it, and what does without `typing`."""
    found: list[Change] = []
    fields: set[ast.stmt] = set()
    for node in ast.walk(tree):  # a class before what is in it
        if isinstance(node, ast.FunctionDef):
            kinds = node.args
            for one in [*kinds.args, *kinds.kwonlyargs, kinds.vararg, kinds.kwarg]:
                if one is not None and one.annotation is not None:
                    start = (one.lineno, one.col_offset + len(one.arg.encode()))
                    found.append((start, _end(one.annotation), ""))
            if node.returns is not None:
                arrow = (node.returns.lineno, node.returns.col_offset - len(" -> "))
                found.append((arrow, _end(node.returns), ""))
        elif isinstance(node, ast.ImportFrom) and node.module == "typing":
            named = any(alias.name == "NamedTuple" for alias in node.names)
            found.append((_start(node), _end(node), "from .light import named" if named else ""))
        elif isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["NamedTuple"]:
            own = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            names = " ".join(ast.unparse(one.target) for one in own)
            defaults = [ast.unparse(one.value) for one in own if one.value is not None]
            base = f"named({', '.join([repr(names), *defaults])})"
            found.append((_start(node.bases[0]), _end(node.bases[0]), base))
            # A class of fields has no others either.
            found += [(_start(one), _end(one), "" if one is not own[0] else "__slots__ = ()") for one in own]
            fields.update(own)
        elif isinstance(node, ast.AnnAssign) and node not in fields:
            if node.value is None:
                found.append((_start(node), _end(node), "pass"))
            else:
                found.append((_end(node.target), _end(node.annotation), ""))
    return found


def _start(node: ast.stmt | ast.expr) -> Position:
    return node.lineno, node.col_offset


def _end(node: ast.stmt | ast.expr) -> Position:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _replace(lines: list[str], first: Position, last: Position, instead: str) -> None:
    """Put something in place of what stands between two positions; the lines stay."""
    before = lines[first[0] - 1].encode()[: first[1]].decode() + instead
    after = lines[last[0] - 1].encode()[last[1] :].decode()
    if first[0] == last[0]:
        lines[first[0] - 1] = before + after
    else:
        lines[first[0] - 1 : last[0]] = [before, *[""] * (last[0] - first[0] - 1), after]


@functools.cache
def packed() -> str:
    """The runner as it travels and as a site installs it: lines of ASCII, without one at the end."""
    modules = sorted({_IMPORTER_NAME: _IMPORTER, **sources()}.items())
    data = bz2.compress("\0".join(f"{name}\n{text}" for name, text in modules).encode("utf-8"), 9)
    text = base64.b85encode(data).decode("ascii")
    return "\n".join(text[start : start + 100] for start in range(0, len(text), 100))


@functools.cache
def digest() -> str:
    """SHA-256 of `packed` without its line ends, in hexadecimal digits: an installed runner's, too."""
    return hashlib.sha256(packed().replace("\n", "").encode("ascii")).hexdigest()


@functools.cache
def job_script(python: str = "python3", path: str | None = None) -> str:
    """The batch script.

    Args:
        python: the site's interpreter on the nodes, a name or an absolute path.
        path: where the nodes have `packed`; None for a script that carries it.

    Raises:
        ConfigError: one of them is empty or holds a control character.
    """
    for key, value in (("python", python), ("path", path)):
        if value is not None and (not value or not value.isprintable()):
            raise ConfigError(f"podrunner.{key}: must be a program's name or path")
    if path is None:
        check, look, source = "", "", f"9<<'PODRUNNER'\n{packed()}\nPODRUNNER"
    else:
        # Another release's would not understand this one's plans, or not carry out all of them.
        check, look = _INSTALLED.format(path=shlex.quote(path)), _LOOK
        source = f"{digest()} 9<{shlex.quote(path)}"
    return _SCRIPT.format(
        python=shlex.quote(python), check=check, boot=_BOOT.format(look=look), source=source
    )

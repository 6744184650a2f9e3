"""The batch script that looks at a node: the same bytes for every site but the interpreter's name.

It carries the pod runner's own modules, so that what is tried on the node is what pods will do there.
A shell that finds no Python tells so itself.
"""

from __future__ import annotations

import base64
import functools
import json
import shlex
import zlib
from pathlib import Path

from slurmrest_adapter.doctor import node
from slurmrest_adapter.runtimes.script import PACKAGE, bare, sources

DIRECTORY_VARIABLE = "SRA_DOCTOR_DIR"
# The script's exit codes: what it could not tell by a file.
NO_SHARED, NO_DIRECTORY, NOT_WRITABLE = 66, 67, 68

_BOOT = f"""
import base64, importlib.util, json, os, sys, zlib
with os.fdopen(9, "rb") as stream:
    sources = json.loads(zlib.decompress(base64.b64decode(stream.read())).decode("ascii"))
class Importer(object):
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            package = any(other.startswith(name + ".") for other in sources)
            return importlib.util.spec_from_loader(name, self, is_package=package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(sources[name], name.replace(".", "/") + ".py", "exec"), module.__dict__)
sys.meta_path.insert(0, Importer())
from sra.doctor.node import entry
sys.exit(entry(os.environ["{DIRECTORY_VARIABLE}"]))
""".strip()

_SCRIPT = """\
#!/bin/sh
# slurmrest-adapter doctor: looks at this node for what pods need, and changes nothing.
umask 077
cd /
exec </dev/null
dir=${{{variable}:-}}
[ -d "${{dir%/*}}" ] || exit {no_shared}
[ -r "$dir/{question}" ] || exit {no_directory}
wanted={python}
python=$wanted
if ! command -v "$python" >/dev/null 2>&1; then
  for python in python3 /usr/bin/python3 /usr/libexec/platform-python; do
    if command -v "$python" >/dev/null 2>&1; then break; fi
  done
fi
version=$("$python" -c 'import sys; sys.stdout.write("%d.%d.%d" % tuple(sys.version_info[:3]))' 2>/dev/null)
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
  command -v apptainer >/dev/null 2>&1 && apptainer=true || apptainer=false
  printf '{{"node": "%s", "python": null, "version": "%s", "apptainer_there": %s}}\\n' \\
    "${{SLURMD_NODENAME:-}}" "$version" "$apptainer" >"$dir/{findings}.new" || exit {not_writable}
  mv "$dir/{findings}.new" "$dir/{findings}" || exit {not_writable}
  exit 0
fi
exec "$python" -I -S -c '{boot}' 9<<'DOCTOR'
{payload}
DOCTOR
"""


@functools.cache
def doctor_script(python: str) -> str:
    """The batch script; `python` is the site's interpreter on the nodes, a name or an absolute path."""
    packed = {name.replace(PACKAGE, f"sra.{PACKAGE}", 1): text for name, text in sources().items()}
    packed.update(
        {
            "sra": "",
            "sra.doctor": "",
            "sra.doctor.node": bare(Path(node.__file__).read_text(encoding="utf-8")),
        }
    )
    data = zlib.compress(json.dumps(packed, sort_keys=True).encode("ascii"), 9)
    text = base64.b64encode(data).decode("ascii")
    return _SCRIPT.format(
        variable=DIRECTORY_VARIABLE,
        question=node.QUESTION,
        findings=node.FINDINGS,
        python=shlex.quote(python),
        no_shared=NO_SHARED,
        no_directory=NO_DIRECTORY,
        not_writable=NOT_WRITABLE,
        boot=_BOOT,
        payload="\n".join(text[start : start + 100] for start in range(0, len(text), 100)),
    )

"""From the emitted specs to the spec the generator reads."""

from pathlib import Path

from .data import Data, Version
from .errors import GenerateError
from .prune import Seen, project_fields, prune_operations
from .repairs import REPAIRS
from .spec import Json, read, union


def load_spec(openapi: Path, version: Version) -> Json:
    """The version's spec as emitted; of several releases, their union."""
    spec, *newer = (read(path) for path in version.spec_files(openapi))
    for other in newer:
        spec = union(spec, other)
    return spec


def prepare(openapi: Path, data: Data, version: Version, seen: Seen) -> Json:
    """The pruned, projected and repaired spec of one version. Raises GenerateError."""
    spec = load_spec(openapi, version)
    prune_operations(spec, data, version.name, seen)
    for number, repair in enumerate(data.repairs, 1):
        if repair.kind == "project_fields":
            project_fields(spec, data, version.name, seen)
            continue
        function = REPAIRS.get(repair.kind)
        if function is None:
            known = ", ".join(sorted(REPAIRS))
            raise GenerateError(f"repairs.toml: unknown kind {repair.kind}; known: {known}")
        try:
            found = function(spec, **repair.args)
        except TypeError as error:
            raise GenerateError(f"repairs.toml: entry {number} ({repair}): {error}") from error
        seen.note(f"repair {number} ({repair})", version.name, found)
    return spec

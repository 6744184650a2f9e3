"""docs/fields.md, made from the field table; a test fails when the file is not what this returns.

To write it anew:
``python -c "from slurmrest_adapter.translate.fields_docs import document as d; print(d(), end='')"``
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from slurmrest_adapter.translate.fields import TABLES
from slurmrest_adapter.translate.fields_model import Row, Verdict

_TITLES = {
    "PodSpec": "`spec` (v1.PodSpec)",
    "PodOS": "`spec.os`",
    "HostAlias": "`spec.hostAliases[]`",
    "PodDNSConfig": "`spec.dnsConfig`",
    "PodDNSConfigOption": "`spec.dnsConfig.options[]`",
    "Volume": "`spec.volumes[]` (v1.Volume)",
    "VolumeMount": "`volumeMounts[]` of a container",
    "ConfigMapVolumeSource": "`configMap` of a volume",
    "SecretVolumeSource": "`secret` of a volume",
    "ProjectedVolumeSource": "`projected` of a volume",
    "DownwardAPIVolumeSource": "`downwardAPI` of a volume",
    "EmptyDirVolumeSource": "`emptyDir` of a volume",
    "HostPathVolumeSource": "`hostPath` of a volume",
    "PersistentVolumeClaimVolumeSource": "`persistentVolumeClaim` of a volume",
    "KeyToPath": "`items[]` of `configMap` and `secret`",
    "VolumeProjection": "`projected.sources[]`",
    "ConfigMapProjection": "`projected.sources[].configMap`",
    "SecretProjection": "`projected.sources[].secret`",
    "DownwardAPIProjection": "`projected.sources[].downwardAPI`",
    "DownwardAPIVolumeFile": "`items[]` of `downwardAPI`",
    "ServiceAccountTokenProjection": "`projected.sources[].serviceAccountToken`",
    "Container": "`spec.containers[]` (v1.Container)",
    "InitContainer": "`spec.initContainers[]`",
    "ResourceRequirements": "`resources` of a container",
    "Lifecycle": "`lifecycle` of a container",
    "EnvVar": "`env[]` of a container",
    "EnvVarSource": "`env[].valueFrom`",
    "EnvFromSource": "`envFrom[]` of a container",
    "SecurityContext": "`securityContext` of a container",
    "PodSecurityContext": "`spec.securityContext`",
    "Capabilities": "`capabilities` of a security context",
    "SeccompProfile": "`seccompProfile`",
    "AppArmorProfile": "`appArmorProfile`",
}

_INTRODUCTION = """\
# What happens to each field of a pod

Made from the field table in `slurmrest_adapter/translate`; do not edit.

- **done**: carried to the Slurm job.
- **without effect here**: changes nothing of what the pod means as a job. Where it says *noted*,
  the pod's message tells the author so.
- **refused**: would change what the pod means and cannot be carried; the pod is refused, naming
  the field.

A value that says nothing (`null`; `false`, `""`, `[]` or `{}` where no line speaks of it) is never
refused. A field that is not listed is refused as unknown. Fields marked *by the site* follow
`identity.run_as_user`: `ignore` as listed, `refuse` refuses them. A volume counts where a container
mounts it. ConfigMaps and Secrets come with the pod. A service account's token comes from whoever sends
the pod; where none was sent, the volume with the token that the API server adds to every pod is
without effect, and noted.

Of the metadata, names, namespace, UID and labels are the job's identity and what variables refer to.
One annotation has a meaning of its own: `slurm-job.vk.io/requeue: "true"` lets Slurm start the job again
by itself, from the beginning, when it lost its node or was preempted, and `"false"` does not, whatever
the site's `defaults.requeue` says.
"""


def document() -> str:
    """The whole table as Markdown."""
    return _INTRODUCTION + "".join(_section(kind) for kind in TABLES)


def _section(kind: str) -> str:
    rows = TABLES[kind]
    if kind == "InitContainer":
        rows = {key: row for key, row in rows.items() if row != TABLES["Container"][key]}
        head = "As `spec.containers[]`, but:\n\n"
    else:
        head = ""
    lines = "".join(line for key, row in rows.items() for line in _lines(key, row))
    return f"\n## {_TITLES[kind]}\n\n{head}| field | value | verdict | |\n|---|---|---|---|\n{lines}"


def _lines(key: str, row: Row) -> Iterator[str]:
    name = f"`{key}`"
    for case in row.cases:
        yield _line(name, f"`{json.dumps(case.value)}`", case.verdict, case.why, case.note)
        name = ""
    why = row.why + (" (by the site)" if row.identity else "")
    yield _line(name, "any other" if row.cases else "", row.verdict, why, row.note)


def _line(name: str, value: str, verdict: Verdict, why: str, note: bool) -> str:
    return f"| {name} | {value} | {verdict}{', noted' if note else ''} | {why} |\n"

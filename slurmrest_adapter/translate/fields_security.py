"""Field table: security contexts. A job never has more rights than its Slurm user."""

from __future__ import annotations

from slurmrest_adapter.translate.fields_model import (
    Table,
    done,
    is_done,
    is_idle,
    is_refused,
    no_effect,
    refused,
)

_AS_USER = "the job runs as the Slurm user of the identity map"
_NODE_POLICY = "jobs run without privileges under the node's own policy"

_PROFILE: Table = {
    "localhostProfile": no_effect("str", "read only with type Localhost, which is refused"),
    "type": refused(
        "str",
        "an unknown type of profile",
        is_idle("RuntimeDefault", _NODE_POLICY),
        is_idle("Unconfined", _NODE_POLICY),
        is_refused("Localhost", "profiles of Kubernetes' nodes are not on Slurm's nodes"),
    ),
}

SECURITY_CONTEXT: Table = {
    "allowPrivilegeEscalation": no_effect(
        "bool",
        "nothing in a job can gain privileges",
        is_done(False, "nothing in a job can gain privileges"),
    ),
    "appArmorProfile": done("map", "by its type", kind="AppArmorProfile"),
    "capabilities": done("map", "by what is added and dropped", kind="Capabilities"),
    "privileged": refused("bool", "a job has no privileges to give"),
    "procMount": refused(
        "str",
        "/proc is always masked as by default",
        is_done("Default", "/proc is always masked as by default"),
    ),
    "readOnlyRootFilesystem": done("bool", "else what is written is kept on the node until the pod ends"),
    "runAsGroup": no_effect("int", _AS_USER, note=True, identity=True),
    "runAsNonRoot": done("bool", "root is never mapped to"),
    "runAsUser": no_effect("int", _AS_USER, note=True, identity=True),
    "seLinuxOptions": no_effect("map", "the node's own policy labels a job's processes"),
    "seccompProfile": done("map", "by its type", kind="SeccompProfile"),
    "windowsOptions": refused("map", "Slurm's nodes run Linux"),
}

CAPABILITIES: Table = {
    "add": refused("list", "a job has no capabilities to give"),
    "drop": no_effect("list", "a job has no capabilities to begin with"),
}

POD_SECURITY_CONTEXT: Table = {
    "appArmorProfile": done("map", "by its type", kind="AppArmorProfile"),
    "fsGroup": no_effect("int", _AS_USER + ", with that user's groups", note=True, identity=True),
    "fsGroupChangePolicy": no_effect("str", "no volume changes its group"),
    "runAsGroup": no_effect("int", _AS_USER, note=True, identity=True),
    "runAsNonRoot": done("bool", "root is never mapped to"),
    "runAsUser": no_effect("int", _AS_USER, note=True, identity=True),
    "seLinuxChangePolicy": no_effect("str", "no volume changes its label"),
    "seLinuxOptions": no_effect("map", "the node's own policy labels a job's processes"),
    "seccompProfile": done("map", "by its type", kind="SeccompProfile"),
    "supplementalGroups": no_effect("list", _AS_USER + ", with that user's groups", note=True, identity=True),
    "supplementalGroupsPolicy": no_effect("str", _AS_USER + ", with that user's groups"),
    "sysctls": refused("list", "a job cannot set kernel parameters"),
    "windowsOptions": refused("map", "Slurm's nodes run Linux"),
}

SECURITY: dict[str, Table] = {
    "SecurityContext": SECURITY_CONTEXT,
    "PodSecurityContext": POD_SECURITY_CONTEXT,
    "Capabilities": CAPABILITIES,
    "SeccompProfile": _PROFILE,
    "AppArmorProfile": _PROFILE,
}

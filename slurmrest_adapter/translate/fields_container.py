"""Field table: v1.Container and the types inside it."""

from __future__ import annotations

from slurmrest_adapter.translate.fields_env import words
from slurmrest_adapter.translate.fields_model import (
    Table,
    done,
    is_done,
    no_effect,
    refused,
)

_PROBE = "not yet carried: a container would count as healthy without being asked"

CONTAINER: Table = {
    "args": done("list", "replace the image's CMD"),
    "command": done("list", "replaces the image's ENTRYPOINT and CMD"),
    "env": done("list", "byte for byte", kind="EnvVar"),
    "envFrom": done("list", "resolved before the pod becomes a job", kind="EnvFromSource"),
    "image": done("str", "pulled on the node, or a path there"),
    "imagePullPolicy": done("str", "kept by the runner"),
    "lifecycle": done("map", "by its fields", kind="Lifecycle"),
    "livenessProbe": refused("map", _PROBE),
    "name": done("str", "names the container's log and record"),
    "ports": no_effect("list", "jobs are on the node's network: every port is reachable there"),
    "readinessProbe": refused("map", _PROBE),
    "resizePolicy": no_effect("list", "a job's size is fixed when it starts"),
    "resources": done("map", "summed for the job", kind="ResourceRequirements"),
    "restartPolicy": refused(
        "str",
        "must be Always, OnFailure or Never",
        is_done("Never", "the container runs once, whatever the pod's policy"),
        is_done("Always", "started again within the job, whatever the pod's policy"),
        is_done("OnFailure", "started again within the job after a failure, whatever the pod's policy"),
    ),
    "restartPolicyRules": refused("list", "not yet carried: restarts by exit code"),
    "securityContext": done("map", "by its fields", kind="SecurityContext"),
    "startupProbe": refused("map", _PROBE),
    "stdin": refused("bool", "not yet carried: a program would find its input closed"),
    "stdinOnce": no_effect("bool", "says how stdin closes, and stdin is refused"),
    "terminationMessagePath": done(
        "str", "the last 4096 bytes of this file are the container's message (plain mode: not below /dev)"
    ),
    "terminationMessagePolicy": refused(
        "str",
        "must be File or FallbackToLogsOnError",
        is_done("File", "the file alone is the container's message"),
        is_done("FallbackToLogsOnError", "after a failure the end of the log stands in for an empty file"),
    ),
    "tty": no_effect("bool", "the output is a pipe, not a terminal", note=True),
    "volumeDevices": refused("list", "block devices are not carried"),
    "volumeMounts": done("list", "parents before what lies below them", kind="VolumeMount"),
    "workingDir": done("str", "the directory the command starts in"),
}

INIT_CONTAINER: Table = {
    **CONTAINER,
    "restartPolicy": refused(
        "str",
        "must be Always, OnFailure or Never",
        is_done("Never", "the container runs once, whatever the pod's policy"),
        is_done("OnFailure", "started again within the job until it succeeds, whatever the pod's policy"),
        is_done("Always", "a sidecar: runs on beside the containers and ends after them"),
    ),
}

RESOURCE_REQUIREMENTS: Table = {
    "claims": refused("list", "devices come from Slurm's GRES alone"),
    "limits": done("map", "CPU, memory and the site's GPUs; ephemeral-storage is without effect"),
    "requests": done("map", "count where there is no limit"),
}

LIFECYCLE: Table = {
    "postStart": refused("map", "hooks are not yet carried"),
    "preStop": refused("map", "hooks are not yet carried"),
    "stopSignal": refused(
        "str",
        "not yet carried: a container is ended by TERM",
        is_done("SIGTERM", "a container is ended by TERM"),
    ),
}

ENV_VAR: Table = {
    "name": done("str", "any that Kubernetes takes; in the runner's plain mode not all"),
    "value": done("str", "after $(NAME) is expanded"),
    "valueFrom": done("map", "resolved before the pod becomes a job", kind="EnvVarSource"),
}

_REFERENCE = "refused where it is still there: whoever sends the pod resolves it"

ENV_VAR_SOURCE: Table = {
    key: refused("map", _REFERENCE, words=words(key))
    for key in ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
}

ENV_FROM_SOURCE: Table = {
    "configMapRef": refused("map", _REFERENCE, words=words("configMapRef")),
    "prefix": done("str", "put before each name"),
    "secretRef": refused("map", _REFERENCE, words=words("secretRef")),
}

CONTAINERS: dict[str, Table] = {
    "Container": CONTAINER,
    "InitContainer": INIT_CONTAINER,
    "ResourceRequirements": RESOURCE_REQUIREMENTS,
    "Lifecycle": LIFECYCLE,
    "EnvVar": ENV_VAR,
    "EnvVarSource": ENV_VAR_SOURCE,
    "EnvFromSource": ENV_FROM_SOURCE,
}

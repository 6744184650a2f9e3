"""Field table: v1.Volume, v1.VolumeMount and the types inside them."""

from __future__ import annotations

from slurmrest_adapter.translate.fields_model import (
    Table,
    done,
    is_done,
    no_effect,
    refused,
)

VOLUME_REFUSED = "not yet carried; without effect where no container mounts it"
_NOT_CARRIED = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)

VOLUME: Table = {
    "name": done("str", "mounts name it"),
    "configMap": done("map", "its keys become files on memory", kind="ConfigMapVolumeSource"),
    "downwardAPI": done("map", "its items become files", kind="DownwardAPIVolumeSource"),
    "emptyDir": done("map", "a directory of the job on its node", kind="EmptyDirVolumeSource"),
    "hostPath": done("map", "where the site allows it (`policy.host_paths`)", kind="HostPathVolumeSource"),
    "persistentVolumeClaim": done(
        "map",
        "the directory that the site names for it (`volumes.pvc`)",
        kind="PersistentVolumeClaimVolumeSource",
    ),
    "projected": done("map", "its sources share one directory", kind="ProjectedVolumeSource"),
    "secret": done("map", "its keys become files on memory", kind="SecretVolumeSource"),
    **{source: refused("map", VOLUME_REFUSED) for source in _NOT_CARRIED},
}

VOLUME_MOUNT: Table = {
    "bindMountOptions": refused("list", "not yet carried"),
    "mountPath": done("str", "where the container sees the volume"),
    "mountPropagation": refused(
        "str",
        "mounts made elsewhere do not appear in a container",
        is_done("None", "mounts made elsewhere do not appear in a container"),
    ),
    "name": done("str", "the volume's name"),
    "readOnly": done("bool", "the container cannot write; volumes of files are read-only in any case"),
    "recursiveReadOnly": done(
        "str", "no mounts are in a volume; `Enabled` is refused for directories of the node"
    ),
    "subPath": done("str", "a file or directory of the volume, relative and without '..'"),
    "subPathExpr": done("str", "as subPath, after $(NAME) is expanded; backticks are refused"),
}

_OWNER = no_effect("int", "the job's user owns all files", note=True, identity=True)
_ITEMS = "keys become files at their paths; without items all keys do"
_MODE = "permission bits, 0 to 0777 (octal)"
_OPTIONAL = "what is missing and not optional refuses the pod"

CONFIG_MAP_VOLUME: Table = {
    "defaultMode": done("int", _MODE),
    "defaultUser": _OWNER,
    "items": done("list", _ITEMS, kind="KeyToPath"),
    "name": done("str", "the ConfigMap, which comes with the pod"),
    "optional": done("bool", _OPTIONAL),
}

SECRET_VOLUME: Table = {
    "defaultMode": done("int", _MODE),
    "defaultUser": _OWNER,
    "items": done("list", _ITEMS, kind="KeyToPath"),
    "optional": done("bool", _OPTIONAL),
    "secretName": done("str", "the Secret, which comes with the pod"),
}

PROJECTED_VOLUME: Table = {
    "defaultMode": done("int", _MODE),
    "defaultUser": _OWNER,
    "sources": done("list", "in order; of two files at one path the later stands", kind="VolumeProjection"),
}

DOWNWARD_API_VOLUME: Table = {
    "defaultMode": done("int", _MODE),
    "defaultUser": _OWNER,
    "items": done("list", "each becomes a file", kind="DownwardAPIVolumeFile"),
}

EMPTY_DIR_VOLUME: Table = {
    "medium": refused(
        "str",
        "huge pages are not carried",
        is_done("", "on the node's own disk"),
        is_done("Memory", "on memory, which counts as the job's"),
    ),
    "mode": refused("int", "not yet carried: everybody in the pod may write (0777)"),
    "sizeLimit": done("quantity", "kept on memory; on disk noted, nothing is ended for it"),
}

HOST_PATH_VOLUME: Table = {
    "path": done("str", "on the job's node, with the rights of the job's user"),
    "type": done("str", "looked at, and made where it says so, on the node"),
}

CLAIM_VOLUME: Table = {
    "claimName": done("str", "looked up with the pod's namespace"),
    "readOnly": done("bool", "no container can write"),
}

KEY_TO_PATH: Table = {
    "key": done("str", "the key in the ConfigMap or Secret"),
    "mode": done("int", _MODE),
    "path": done("str", "relative and without '..'"),
    "user": _OWNER,
}

VOLUME_PROJECTION: Table = {
    "clusterTrustBundle": refused("map", "not yet carried"),
    "configMap": done("map", "as a volume's", kind="ConfigMapProjection"),
    "downwardAPI": done("map", "as a volume's", kind="DownwardAPIProjection"),
    "podCertificate": refused("map", "not yet carried: a running job gets no new certificate"),
    "secret": done("map", "as a volume's", kind="SecretProjection"),
    "serviceAccountToken": done(
        "map", "the token that whoever sends the pod has asked for", kind="ServiceAccountTokenProjection"
    ),
}

CONFIG_MAP_PROJECTION: Table = {
    "items": done("list", _ITEMS, kind="KeyToPath"),
    "name": done("str", "the ConfigMap, which comes with the pod"),
    "optional": done("bool", _OPTIONAL),
}

SECRET_PROJECTION: Table = {
    "items": done("list", _ITEMS, kind="KeyToPath"),
    "name": done("str", "the Secret, which comes with the pod"),
    "optional": done("bool", _OPTIONAL),
}

DOWNWARD_API_PROJECTION: Table = {
    "items": done("list", "each becomes a file", kind="DownwardAPIVolumeFile"),
}

DOWNWARD_API_FILE: Table = {
    "fieldRef": done("map", "name, namespace, uid, labels or annotations of metadata"),
    "mode": done("int", _MODE),
    "path": done("str", "relative and without '..'"),
    "resourceFieldRef": done("map", "limits and requests of a container"),
    "user": _OWNER,
}

_ASKED = "whoever sends the pod has asked for the token"

TOKEN_PROJECTION: Table = {
    "audience": no_effect("str", _ASKED),
    "expirationSeconds": no_effect("int", _ASKED),
    "path": done("str", "relative and without '..'"),
    "user": _OWNER,
}

VOLUMES: dict[str, Table] = {
    "Volume": VOLUME,
    "VolumeMount": VOLUME_MOUNT,
    "ConfigMapVolumeSource": CONFIG_MAP_VOLUME,
    "SecretVolumeSource": SECRET_VOLUME,
    "ProjectedVolumeSource": PROJECTED_VOLUME,
    "DownwardAPIVolumeSource": DOWNWARD_API_VOLUME,
    "EmptyDirVolumeSource": EMPTY_DIR_VOLUME,
    "HostPathVolumeSource": HOST_PATH_VOLUME,
    "PersistentVolumeClaimVolumeSource": CLAIM_VOLUME,
    "KeyToPath": KEY_TO_PATH,
    "VolumeProjection": VOLUME_PROJECTION,
    "ConfigMapProjection": CONFIG_MAP_PROJECTION,
    "SecretProjection": SECRET_PROJECTION,
    "DownwardAPIProjection": DOWNWARD_API_PROJECTION,
    "DownwardAPIVolumeFile": DOWNWARD_API_FILE,
    "ServiceAccountTokenProjection": TOKEN_PROJECTION,
}

"""Field table: v1.PodSpec and v1.PodOS."""

from __future__ import annotations

from slurmrest_adapter.translate.fields_model import (
    Table,
    done,
    is_done,
    is_idle,
    no_effect,
    refused,
)

_SCHEDULER = "chose this node before the pod came here; Slurm chooses among its own"
_ORDER = "orders pods that wait for a Kubernetes node; jobs wait by Slurm's own priority"
_API_SERVER = "is the API server's own affair"

POD_SPEC: Table = {
    "activeDeadlineSeconds": done("int", "counts from the start of the job; Slurm's limit stands above it"),
    "affinity": no_effect("map", _SCHEDULER),
    "automountServiceAccountToken": no_effect("bool", "the API server adds the token's volume, or not"),
    "containers": done("list", "all run side by side in one job", kind="Container"),
    "dnsConfig": done("map", "joined to the node's resolver", kind="PodDNSConfig"),
    "dnsPolicy": no_effect(
        "str",
        "a container has its node's resolver",
        is_done("Default", "a container has its node's resolver"),
        is_done("None", "dnsConfig alone counts"),
    ),
    "enableServiceLinks": no_effect("bool", "whoever sends the pod puts service variables into env"),
    "ephemeralContainers": refused("list", "nothing can be added to a running job yet"),
    "evictionResponders": no_effect("list", _API_SERVER),
    "hostAliases": done("list", "follow the node's own lines in /etc/hosts", kind="HostAlias"),
    "hostIPC": refused("bool", "containers do not share the node's IPC namespace"),
    "hostNetwork": no_effect("bool", "jobs are on the node's network in any case"),
    "hostPID": refused("bool", "containers do not see the node's processes"),
    "hostUsers": no_effect("bool", "a container has a user namespace in any case"),
    "hostname": done("str", "the containers' host name"),
    "hostnameOverride": refused("str", "not yet carried"),
    "imagePullSecrets": refused("list", "not yet carried: images are pulled without credentials"),
    "initContainers": done(
        "list", "run one after the other before the containers; sidecars run on", kind="InitContainer"
    ),
    "nodeName": no_effect("str", "names the virtual node"),
    "nodeSelector": no_effect(
        "map", "selects the virtual node; nvidia.com/gpu.product also gives the GPU's type"
    ),
    "os": done("map", "by its name", kind="PodOS"),
    "overhead": no_effect("map", "is the cost of a runtime class, and there is none here"),
    "preemptionPolicy": no_effect("str", _ORDER),
    "priority": no_effect("int", _ORDER),
    "priorityClassName": no_effect("str", _ORDER),
    "readinessGates": refused("list", "not yet carried: readiness has no conditions of others"),
    "resourceClaims": refused("list", "devices come from Slurm's GRES alone"),
    "resources": refused("map", "not yet carried for a whole pod: give each container its own"),
    "restartPolicy": refused(
        "str",
        "must be Always, OnFailure or Never",
        is_done("Never", "the containers run once"),
        is_done("Always", "containers are started again within the job, until it ends"),
        is_done("OnFailure", "containers that fail are started again within the job"),
    ),
    "runtimeClassName": refused("str", "the site's runtime is the only one"),
    "schedulerName": no_effect("str", _SCHEDULER),
    "schedulingGates": no_effect("list", "the API server holds the pod until they are gone"),
    "schedulingGroup": refused("map", "pods of a group would not start together: each is its own job"),
    "securityContext": done("map", "by its fields", kind="PodSecurityContext"),
    "serviceAccount": no_effect("str", "is the old name of serviceAccountName"),
    "serviceAccountName": done("str", "the identity map reads it"),
    "setHostnameAsFQDN": refused("bool", "not yet carried: the host name is the short one"),
    "shareProcessNamespace": refused("bool", "not yet carried: each container sees its own processes"),
    "subdomain": no_effect("str", "names the pod in the cluster's DNS, which Slurm's nodes do not ask"),
    "terminationGracePeriodSeconds": done("int", "is counted between TERM and KILL"),
    "tolerations": no_effect("list", _SCHEDULER),
    "topologySpreadConstraints": no_effect("list", _SCHEDULER),
    "volumes": done("list", "by whether a container mounts it", kind="Volume"),
}

HOST_ALIAS: Table = {
    "hostnames": done("list", "names of the address"),
    "ip": done("str", "an address"),
}

POD_DNS_CONFIG: Table = {
    "nameservers": done("list", "at most three addresses"),
    "options": done("list", "of one name the last stands", kind="PodDNSConfigOption"),
    "searches": done("list", "domains"),
}

POD_DNS_CONFIG_OPTION: Table = {
    "name": done("str", "as in resolv.conf"),
    "value": done("str", "after a colon, as in resolv.conf"),
}

POD_OS: Table = {
    "name": refused("str", "Slurm's nodes run Linux", is_idle("linux", "Slurm's nodes run Linux")),
}

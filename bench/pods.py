"""The pods that the benchmarks carry."""

from __future__ import annotations

from typing import Any


def container(number: int) -> dict[str, Any]:
    """A container as people write them: eight variables, a GPU, a mount, what the API server adds."""
    return {
        "name": f"worker-{number}",
        "image": f"registry.example:5000/team/train:{number}",
        "command": ["python3", "-m", "train"],
        "args": ["--epochs", "10", "--rank", str(number)],
        "env": [{"name": f"SETTING_{index}", "value": f"value {index}"} for index in range(8)],
        "resources": {
            "requests": {"cpu": "500m", "memory": "256Mi", "nvidia.com/gpu": "1"},
            "limits": {"cpu": "1", "memory": "512Mi", "nvidia.com/gpu": "1"},
        },
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        "workingDir": "/work",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def pod(containers: int) -> dict[str, Any]:
    """A pod of so many containers, as the API server hands it out."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "bench",
            "namespace": "physics",
            "uid": "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
            "labels": {"app": "train"},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [container(number) for number in range(containers)],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}],
        },
    }

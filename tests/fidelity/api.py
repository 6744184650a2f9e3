"""A user's client of the API server: raw dictionaries over the official client's connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import rest

from vk_provider.kube import MERGE, configuration


class ApiError(AssertionError):
    """The API server answered with an error that the test did not expect."""

    def __init__(self, what: str, status: int, words: str) -> None:
        super().__init__(f"{what}: {status}: {words}")
        self.status = status


class Api:
    """Calls the API server with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.config = configuration(kubeconfig)
        self._pool = rest.RESTClientObject(self.config).pool_manager

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> bytes:
        """One call; the body of its answer.

        Raises:
            ApiError: the answer is no success.
        """
        url = f"{self.config.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": MERGE if method == "PATCH" else "application/json"}
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(method, url, body=data, headers=headers, timeout=60)
        if not 200 <= answer.status < 300:
            raise ApiError(f"{method} {path}", answer.status, answer.data.decode(errors="replace"))
        return bytes(answer.data)

    def json(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """One call whose answer is an object."""
        found: dict[str, Any] = json.loads(self.call(method, path, body, **query))
        return found

    def find(self, path: str) -> dict[str, Any] | None:
        """An object, None when it is not there."""
        try:
            return self.json("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, path: str, grace: int | None = None) -> None:
        """Delete an object; one that is not there is fine."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions"}
        try:
            self.call("DELETE", path, options if grace is None else {**options, "gracePeriodSeconds": grace})
        except ApiError as error:
            if error.status != 404:
                raise

"""A small client of the API server, for the lab's own needs: JSON over HTTPS with a client certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from .layout import Lab


class Api:
    """Requests as the lab's administrator."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._context = ssl.create_default_context(cafile=str(lab.pki / "ca.crt"))
        self._context.load_cert_chain(lab.pki / "admin.crt", lab.pki / "admin.key")

    def ask(self, method: str, path: str, body: object = None, *, daemon: str = "kube-apiserver") -> Any:
        """Return the JSON (or the text, if it is none) of an answer.

        Raises OSError if there is no answer, ApiError for any status but 2xx.
        """
        port = self._lab.port(daemon)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=self._context)
        try:
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status // 100 != 2:
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {text.strip()[:500]}")
        return json.loads(text) if text.startswith("{") else text

    def exists(self, path: str) -> bool:
        """Say whether an object is there; no answer counts as no."""
        try:
            self.ask("GET", path)
        except (OSError, ApiError):
            return False
        return True

    def healthy(self, daemon: str) -> bool:
        """Say whether a daemon says that it is well; no answer counts as no."""
        try:
            self.ask("GET", "/readyz" if daemon == "kube-apiserver" else "/healthz", daemon=daemon)
        except (OSError, ApiError):
            return False
        return True


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

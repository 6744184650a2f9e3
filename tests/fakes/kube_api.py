"""A small Kubernetes API server in memory, over plain HTTP.

It keeps objects and their history: resource versions, list and watch with bookmarks and 410,
strategic merge of conditions, status subresources, graceful deletion, preconditions, token
requests, access reviews. Outages, failures and broken watches are switches.
"""

from __future__ import annotations

import base64
import copy
import http.server
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]

_ITEM = re.compile(
    r"(?P<collection>/api(?:s/[^/]+)?/v1(?:/namespaces/[^/]+)?/(?P<kind>(?!namespaces\b)[a-z]+))"
    r"/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?"
)
_MERGE_KEYS = {"conditions": "type", "podIPs": "ip", "addresses": "type", "taints": "key"}


class ApiError(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message or reason,
        }
        self.code = code


class FakeKubeApi:
    """Use it as a context manager.

    Attributes:
        requests: (method, path, body) of each call, watches too.
        rules: called with method and path before each call; may raise `ApiError`.
        down: connections are closed without an answer.
        slow_s: seconds before each answer.
        allowed: users whom access reviews allow.
        sign: makes a certificate of a signing request in PEM; None leaves requests unsigned.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.requests: list[tuple[str, str, Any]] = []
        self.rules: list[Callable[[str, str], None]] = []
        self.down = False
        self.slow_s = 0.0
        self.allowed: set[str] = set()
        self.sign: Callable[[bytes], bytes] | None = None
        self._version = 10
        self._oldest = 0
        self._epoch = 0
        self._objects: dict[str, Object] = {}
        self._history: list[tuple[int, str, str, Object]] = []
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.put(
            "/api/v1/namespaces/default/services/kubernetes",
            {"spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}},
        )

    def __enter__(self) -> FakeKubeApi:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.break_watches()
        self._server.shutdown()
        self._server.server_close()

    # What users and controllers do.

    def put(self, path: str, body: Object) -> Object:
        """Make or replace an object."""
        with self.changed:
            collection, _, name = path.rpartition("/")
            found = self._objects.get(path)
            space = re.search(r"/namespaces/([^/]+)/", path)
            metadata = {
                "uid": str(uuid.uuid4()),
                **((found or {}).get("metadata") or {}),
                "name": name,
                **({"namespace": space[1]} if space else {}),
                **(body.get("metadata") or {}),
            }
            return self._store(collection, {**copy.deepcopy(body), "metadata": metadata}, found is None)

    def get(self, path: str) -> Object | None:
        """An object as it is now."""
        with self.changed:
            return copy.deepcopy(self._objects.get(path))

    def pod(self, name: str, namespace: str = "ns") -> Object | None:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def add_pod(self, pod: Object) -> Object:
        """A pod that the scheduler has bound."""
        metadata = pod["metadata"]
        status = {"phase": "Pending", "qosClass": "BestEffort", **(pod.get("status") or {})}
        return self.put(
            f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", {**pod, "status": status}
        )

    def delete_pod(self, name: str, namespace: str = "ns", grace: int | None = None) -> None:
        """kubectl delete; grace 0 is --force."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", options)

    def events(self, reason: str = "", namespace: str = "ns") -> list[Object]:
        with self.changed:
            found = [
                v for k, v in self._objects.items() if k.startswith(f"/api/v1/namespaces/{namespace}/events/")
            ]
            return [event for event in found if not reason or event["reason"] == reason]

    def calls(self, method: str, pattern: str) -> list[Any]:
        """Bodies of the calls so far whose path matches."""
        with self.changed:
            return [body for how, where, body in self.requests if how == method and re.search(pattern, where)]

    def fail(self, method: str, pattern: str, code: int, times: int = 1, reason: str = "Failure") -> None:
        """Let the next calls fail."""
        left = [times]

        def rule(how: str, where: str) -> None:
            if left[0] > 0 and how == method and re.search(pattern, where):
                left[0] -= 1
                raise ApiError(code, reason)

        self.rules.append(rule)

    def break_watches(self) -> None:
        """Every open watch breaks off in the middle."""
        with self.changed:
            self._epoch += 1
            self.changed.notify_all()

    def forget_history(self) -> None:
        """Compaction: a watch from any version so far gets 410."""
        with self.changed:
            self._version += 1
            self._oldest = self._version
            self._history.clear()

    def bookmark(self) -> None:
        """Tell the watches of the newest version."""
        with self.changed:
            self._version += 1
            self._history.append((self._version, "BOOKMARK", "", {"metadata": {}}))
            self.changed.notify_all()

    # The API.

    def create(self, collection: str, body: Object) -> Object:
        with self.changed:
            metadata = body.setdefault("metadata", {})
            if metadata.get("generateName") and not metadata.get("name"):
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            if collection.endswith("/token"):
                return self._token(collection, body)
            if collection.endswith("/subjectaccessreviews"):
                return {**body, "status": {"allowed": body["spec"]["user"] in self.allowed}}
            path = f"{collection}/{metadata['name']}"
            if path in self._objects:
                raise ApiError(409, "AlreadyExists")
            return self.put(path, body)

    def patch(self, item: re.Match[str], body: Object, strategic: bool) -> Object:
        with self.changed:
            path = f"{item['collection']}/{item['name']}"
            found = self._existing(path)
            metadata = body.get("metadata") or {}
            if metadata.get("uid") not in (None, found["metadata"]["uid"]):
                raise ApiError(409, "Conflict", "the UID in the precondition differs")
            if metadata.get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
                raise ApiError(409, "Conflict", "the object has been modified")
            if item["sub"] == "status":
                body = {k: v for k, v in body.items() if k in ("metadata", "status")}
            elif item["kind"] in ("pods", "nodes"):
                body = {k: v for k, v in body.items() if k != "status"}
            return self._store(item["collection"], _merged(found, body, strategic), False)

    def delete(self, path: str, options: Object) -> Object:
        with self.changed:
            found = self._existing(path)
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted not in (None, found["metadata"]["uid"]):
                raise ApiError(409, "Conflict", "the UID in the precondition differs")
            collection = path.rpartition("/")[0]
            grace = options.get("gracePeriodSeconds")
            if collection.endswith("/pods") and grace != 0:
                grace = found["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                found["metadata"] |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": grace}
                return self._store(collection, found, False)
            del self._objects[path]
            self._version += 1
            found["metadata"]["resourceVersion"] = str(self._version)
            self._tell("DELETED", collection, found)
            return found

    def listing(self, collection: str, query: dict[str, list[str]]) -> Object:
        with self.changed:
            items = [
                copy.deepcopy(thing)
                for path, thing in self._objects.items()
                if _inside(collection, path.rpartition("/")[0]) and _selected(thing, query)
            ]
            start = int(query.get("continue", ["0"])[0])
            limit = int(query.get("limit", ["0"])[0]) or len(items) or 1
            metadata: Object = {"resourceVersion": str(self._version)}
            if start + limit < len(items):
                metadata["continue"] = str(start + limit)
            return {"kind": "List", "metadata": metadata, "items": items[start : start + limit]}

    def watch(self, collection: str, query: dict[str, list[str]]) -> Iterator[Object | None]:
        """Events; None asks the server to break the connection off."""
        version = int(query["resourceVersion"][0])
        with self.changed:
            if version < self._oldest:
                raise ApiError(410, "Expired", "too old resource version")
            epoch = self._epoch
        while True:
            with self.changed:
                while not (news := [each for each in self._history if each[0] > version]):
                    if epoch != self._epoch or self.down:
                        yield None
                        return
                    self.changed.wait(0.2)
                    if version < self._oldest:
                        yield {"type": "ERROR", "object": ApiError(410, "Expired").status}
                        return
            for version, kind, where, thing in news:
                if kind == "BOOKMARK":
                    if query.get("allowWatchBookmarks") == ["true"]:
                        yield {"type": kind, "object": {"metadata": {"resourceVersion": str(version)}}}
                elif _inside(collection, where) and _selected(thing, query):
                    yield {"type": kind, "object": thing}

    def _token(self, collection: str, body: Object) -> Object:
        account = collection.removesuffix("/token")
        if account not in self._objects:
            raise ApiError(404, "NotFound", f"serviceaccounts {account.rpartition('/')[2]} not found")
        spec = body["spec"]
        said = json.dumps([spec.get("audiences"), spec["expirationSeconds"], spec["boundObjectRef"]["name"]])
        return {**body, "status": {"token": base64.b64encode(said.encode()).decode()}}

    def _existing(self, path: str) -> Object:
        if path not in self._objects:
            raise ApiError(404, "NotFound", f"{path.rpartition('/')[2]} not found")
        found = copy.deepcopy(self._objects[path])
        if self.sign is not None and "/certificatesigningrequests/" in path and "status" not in found:
            pem = self.sign(base64.b64decode(found["spec"]["request"]))
            found["status"] = {"certificate": base64.b64encode(pem).decode()}
        return found

    def read(self, path: str) -> Object:
        with self.changed:
            return self._existing(path)

    def _store(self, collection: str, thing: Object, new: bool) -> Object:
        path = f"{collection}/{thing['metadata']['name']}"
        before = self._objects.get(path)
        if before is not None and _bare(before) == _bare(thing):
            return copy.deepcopy(before)  # a write that changes nothing makes no new version
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self._objects[path] = thing
        self._tell("ADDED" if new else "MODIFIED", collection, thing)
        return copy.deepcopy(thing)

    def _tell(self, kind: str, collection: str, thing: Object) -> None:
        self._history.append((self._version, kind, collection, copy.deepcopy(thing)))
        self.changed.notify_all()


def _bare(thing: Object) -> Object:
    return {**thing, "metadata": {k: v for k, v in thing["metadata"].items() if k != "resourceVersion"}}


def _inside(asked: str, collection: str) -> bool:
    """Is a collection the one asked for, or its part in one namespace?"""
    return collection == asked or re.sub(r"/namespaces/[^/]+", "", collection) == asked


def _selected(thing: Object, query: dict[str, list[str]]) -> bool:
    for term in query.get("fieldSelector", [""])[0].split(","):
        key, _, wanted = term.partition("=")
        value: Any = thing
        for part in key.split(".") if key else ():
            value = (value or {}).get(part)
        if key and value != wanted:
            return False
    return True


def _merged(old: Any, new: Any, strategic: bool, key: str = "") -> Any:
    if isinstance(new, dict):
        base = dict(old) if isinstance(old, dict) else {}
        for name, value in new.items():
            if value is None:
                base.pop(name, None)
            else:
                base[name] = _merged(base.get(name), value, strategic, name)
        return base
    by = _MERGE_KEYS.get(key)
    if isinstance(new, list) and strategic and by and isinstance(old, list):
        base_list = {each[by]: each for each in old}
        for each in new:
            base_list[each[by]] = _merged(base_list.get(each[by]), each, strategic)
        return list(base_list.values())
    if isinstance(new, list):
        return [_merged(None, each, strategic) for each in new]
    return new


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: FakeKubeApi

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PATCH = do_DELETE = do_GET

    def _answer(self) -> None:
        url = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else {}
        if self.api.slow_s:
            time.sleep(self.api.slow_s)
        with self.api.changed:
            self.api.requests.append((self.command, url.path, body))
            rules = list(self.api.rules)
        if self.api.down:
            self.close_connection = True
            return
        try:
            for rule in rules:
                rule(self.command, url.path)
            query = parse_qs(url.query)
            if "watch" in query:
                return self._stream(self.api.watch(url.path, query))
            self._send(200, self._call(url.path, query, body))
        except ApiError as error:
            self._send(error.code, error.status)

    def _call(self, path: str, query: dict[str, list[str]], body: Object) -> Object:
        item = _ITEM.fullmatch(path)
        if self.command == "POST":
            return self.api.create(path, body)
        if item is None:
            return self.api.listing(path, query)
        if self.command == "PATCH":
            return self.api.patch(item, body, "strategic" in self.headers.get("Content-Type", ""))
        if self.command == "DELETE":
            return self.api.delete(path, body)
        return self.api.read(path)

    def _send(self, code: int, thing: Object) -> None:
        raw = json.dumps(thing).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events: Iterator[Object | None]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for event in events:
                if event is None:
                    return  # without the last chunk
                raw = json.dumps(event).encode() + b"\n"
                half = len(raw) // 2  # events do not come in whole chunks
                for piece in (raw[:half], raw[half:]):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        except ApiError as error:
            raw = json.dumps({"type": "ERROR", "object": error.status}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(raw), raw))
        except OSError:
            pass

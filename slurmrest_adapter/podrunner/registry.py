"""Ask an OCI registry for a manifest's digest, without pulling.

One HEAD request, with the four manifest types of the OCI distribution and Docker specifications,
answers `Docker-Content-Digest`. A 401 with a Bearer challenge is answered once with an anonymous
token, as the Docker token specification says.
"""

import hashlib
import json
import re
import urllib.parse
from typing import Dict, List, NamedTuple, Optional, Tuple

TIMEOUT = 30  # seconds for each request
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_LIMIT = 4 * 1024 * 1024
_DIGEST = re.compile(r"^[a-z0-9]+:[0-9a-fA-F]{32,128}$")


class RegistryError(Exception):
    """The registry's own words, or why it could not be asked; `status` is its HTTP code, 0 if none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Reference(NamedTuple):
    """An image in a registry; `digest` is empty if the reference has none."""

    scheme: str
    host: str
    repository: str
    tag: str
    digest: str

    def pinned(self, digest: str) -> str:
        """The reference by digest alone: Apptainer refuses tag and digest together."""
        return "{}://{}/{}@{}".format(self.scheme, self.host, self.repository, digest)

    def __str__(self) -> str:
        end = "@" + self.digest if self.digest else ":" + self.tag
        return "{}://{}/{}{}".format(self.scheme, self.host, self.repository, end)


def parse(text: str) -> Reference:
    """Read ``docker://host/name:tag`` or ``oras://…``; raises ValueError.

    Docker's rules: without a host (a first part with a dot, a colon, or localhost) it is Docker
    Hub, a single name there is in ``library``; no tag is ``latest``; a digest wins over a tag.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("docker", "oras"):
        raise ValueError("invalid reference format")
    rest, _, digest = rest.partition("@")
    if digest and not _DIGEST.match(digest):
        raise ValueError("invalid reference format")
    first, slash, others = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, name = first, others
    else:
        host, name = "docker.io", rest
    repository, _, tag = name.partition(":")
    if host == "docker.io" and "/" not in repository:
        repository = "library/" + repository
    if not re.match(r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$", repository):
        raise ValueError("invalid reference format")
    if tag and not re.match(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", tag):
        raise ValueError("invalid reference format")
    return Reference(scheme, host, repository, tag or "latest", digest)


def digest_of(reference: Reference, insecure: List[str]) -> str:
    """The manifest's digest, ``sha256:…``; raises RegistryError with the registry's words.

    Hosts in `insecure` are spoken to by plain http.
    """
    if reference.digest:
        return reference.digest
    host = "registry-1.docker.io" if reference.host == "docker.io" else reference.host
    url = "{}://{}/v2/{}/manifests/{}".format(
        "http" if reference.host in insecure else "https", host, reference.repository, reference.tag
    )
    headers = {"Accept": ACCEPT, "User-Agent": "slurmrest-adapter-podrunner"}
    status, answer, body = _request("HEAD", url, headers)
    if status == 401:
        token = _token(answer.get("www-authenticate", ""), reference, insecure)
        if token:
            headers["Authorization"] = "Bearer " + token
            status, answer, body = _request("HEAD", url, headers)
    digest = answer.get("docker-content-digest", "")
    if status != 200 or not digest:
        # A HEAD has no words to tell, and some registries send no digest with it.
        status, answer, body = _request("GET", url, headers)
        if status != 200:
            raise RegistryError("{}: {}".format(reference, _words(status, body)), status)
        digest = answer.get("docker-content-digest", "") or "sha256:" + hashlib.sha256(body).hexdigest()
    if not _DIGEST.match(digest):
        raise RegistryError("{}: the registry answered no valid digest".format(reference))
    return digest


def _request(method: str, url: str, headers: Dict[str, str]) -> Tuple[int, Dict[str, str], bytes]:
    # Here, because it takes as long to import as all else of the runner together.
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.getcode(), _lower(dict(answer.headers.items())), answer.read(_LIMIT)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lower(dict(error.headers.items())), error.read(_LIMIT)
    except urllib.error.URLError as error:
        raise RegistryError("{}: {}".format(urllib.parse.urlsplit(url).netloc, error.reason))
    except (OSError, ValueError) as error:
        raise RegistryError("{}: {}".format(urllib.parse.urlsplit(url).netloc, error))


def _lower(headers: Dict[str, str]) -> Dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def challenge(header: str) -> Optional[Dict[str, str]]:
    """The parameters of a Bearer challenge; None if the header is of another kind."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    return {name.lower(): value for name, value in re.findall(r'([A-Za-z]+)="([^"]*)"', rest)}


def _token(header: str, reference: Reference, insecure: List[str]) -> Optional[str]:
    values = challenge(header)
    if not values or not values.get("realm"):
        return None
    realm = values.pop("realm")
    if not realm.startswith("https://") and reference.host not in insecure:
        return None
    if not realm.startswith(("https://", "http://")):
        return None
    query = urllib.parse.urlencode(sorted(values.items()))
    status, _, body = _request("GET", realm + ("&" if "?" in realm else "?") + query, {})
    try:
        answer = json.loads(body.decode("utf-8")) if status == 200 else {}
    except ValueError:
        return None
    token = answer.get("token") or answer.get("access_token") if isinstance(answer, dict) else None
    return token if isinstance(token, str) else None


def _words(status: int, body: bytes) -> str:
    try:
        errors = json.loads(body.decode("utf-8"))["errors"]
        words = ["{}: {}".format(item["code"], item["message"]) for item in errors]
        return "; ".join(words)
    except (ValueError, KeyError, TypeError):
        return "HTTP {}".format(status)

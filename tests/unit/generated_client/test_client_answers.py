"""What slurmrestd may answer never loses a response, and never passes for another one."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import requests

from generated_client.v0_0_42 import UnexpectedResponse
from generated_client.v0_0_42.api.slurm import get_job, post_job_submit
from generated_client.v0_0_42.api.slurmdb import get_jobs as get_accounting_jobs
from generated_client.v0_0_42.types import UNSET

pytestmark = pytest.mark.unit

OPERATIONS = [
    "slurm.delete_job",
    "slurm.get_job",
    "slurm.get_jobs",
    "slurm.get_jobs_state",
    "slurm.get_nodes",
    "slurm.get_partitions",
    "slurm.get_ping",
    "slurm.post_job",
    "slurm.post_job_submit",
    "slurmdb.get_diag",
    "slurmdb.get_job",
    "slurmdb.get_jobs",
    "slurmdb.get_ping",
]

NUMBER = {"set": True, "infinite": False, "number": 3}
EXIT = {"status": ["ERROR"], "return_code": NUMBER, "signal": {"id": NUMBER, "name": "NONE"}}
JOB_ANSWER: dict[str, Any] = {
    "jobs": [
        {
            "job_id": 143,
            "name": "pod-0123456789ab",
            "user_id": 2001,
            "job_state": ["RUNNING", "COMPLETING"],
            "exit_code": EXIT,
            "time_limit": NUMBER,
            "gres_detail": ["gpu:a100:2(IDX:0-1)"],
            "shared": ["none"],
            "flags": ["EXACT_TASK_COUNT_REQUESTED"],
        }
    ],
    "last_update": NUMBER,
    "meta": {
        "plugin": {"type": "openapi/slurmctld", "data_parser": "data_parser/v0.0.42"},
        "slurm": {
            "version": {"major": "24", "micro": "5", "minor": "11"},
            "release": "24.11.5",
            "cluster": "lab",
        },
    },
    "errors": [{"description": "d", "error_number": 2017, "error": "e", "source": "s"}],
    "warnings": [{"description": "w", "source": "s"}],
}
ACCOUNTING_ANSWER: dict[str, Any] = {
    "jobs": [
        {
            "job_id": 143,
            "state": {"current": ["COMPLETED"], "reason": "None"},
            "exit_code": EXIT,
            "time": {
                "start": 10,
                "end": 70,
                "elapsed": 60,
                "limit": NUMBER,
                "total": {"seconds": 1, "microseconds": 2},
            },
            "tres": {
                "allocated": [{"type": "gres", "name": "gpu:a100", "id": 1001, "count": 2}],
                "requested": [{"type": "cpu", "name": "", "id": 1, "count": 4}],
            },
            "steps": [
                {
                    "step": {"id": "143.batch", "name": "batch"},
                    "nodes": {"count": 1, "range": "n1", "list": ["n1"]},
                    "tres": {
                        "consumed": {
                            "max": [{"type": "mem", "count": 5, "node": "n1", "task": 0}],
                            "total": [],
                        }
                    },
                    "statistics": {"CPU": {"actual_frequency": 1}, "energy": {"consumed": NUMBER}},
                }
            ],
        }
    ],
    "meta": {},
    "errors": [],
    "warnings": [],
}


def answer(body: object, code: int = 200, content_type: str = "application/json") -> requests.Response:
    """A response of the requests library as it comes from a session."""
    response = requests.Response()
    response.status_code = code
    response._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    if content_type:
        response.headers["Content-Type"] = content_type
    return response


def operation(name: str) -> ModuleType:
    """The module of one operation."""
    return import_module(f"generated_client.v0_0_42.api.{name}")


def places(node: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every key and list item inside a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """The value at one place."""
    return reduce(lambda node, key: node[key], path, document)


def changed(document: Any, path: tuple[Any, ...], value: object = ..., *, drop: bool = False) -> Any:
    """A copy of the document with one place replaced or dropped."""
    result = copy.deepcopy(document)
    node = at(result, path[:-1])
    if drop:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return result


DOCUMENTS = [(get_job, JOB_ANSWER), (get_accounting_jobs, ACCOUNTING_ANSWER)]
KEYS = [
    pytest.param(module, document, path, id=".".join(map(str, path)))
    for module, document in DOCUMENTS
    for path in places(document)
    if isinstance(path[-1], str)
]


@pytest.mark.parametrize(("module", "document", "path"), KEYS)
def test_null_in_place_of_any_value_loses_nothing_else(
    module: ModuleType, document: dict[str, Any], path: tuple[Any, ...]
) -> None:
    nulled = changed(document, path, None)
    assert module.parse(answer(nulled)).to_dict() == nulled


@pytest.mark.parametrize(("module", "document", "path"), KEYS)
def test_any_missing_key_loses_nothing_else(
    module: ModuleType, document: dict[str, Any], path: tuple[Any, ...]
) -> None:
    less = changed(document, path, drop=True)
    assert module.parse(answer(less)).to_dict() == less


@pytest.mark.parametrize(("module", "document"), DOCUMENTS)
def test_unknown_keys_are_kept_at_every_level(module: ModuleType, document: dict[str, Any]) -> None:
    more: Any = copy.deepcopy(document)
    for path in [(), *places(document)]:
        node = at(more, path)
        if isinstance(node, dict):
            node["new/in 27.05"] = {"deep": [1, None, "x"]}
    assert module.parse(answer(more)).to_dict() == more


def test_unknown_words_of_enums_are_kept() -> None:
    words = changed(JOB_ANSWER, ("jobs", 0, "job_state"), ["HIBERNATING", "RUNNING"])
    words = changed(words, ("jobs", 0, "exit_code", "status"), ["NEVER_HEARD"])
    job = operation("slurm.get_job").parse(answer(words)).jobs[0]
    assert job.job_state == ["HIBERNATING", "RUNNING"]
    assert job.exit_code.status == ["NEVER_HEARD"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_empty_object_parses_to_nothing_set(name: str) -> None:
    parsed = operation(name).parse(answer({}))
    assert parsed.errors is UNSET
    assert parsed.to_dict() == {}


@pytest.mark.parametrize("code", [200, 404, 422, 500, 502, 511, 599])
@pytest.mark.parametrize("name", OPERATIONS)
def test_errors_are_read_whatever_the_code(name: str, code: int) -> None:
    errors = [{"description": "d", "error_number": 2017, "error": "Invalid job id", "source": "s"}]
    parsed = operation(name).parse(answer({"errors": errors, "warnings": None}, code))
    assert parsed.errors[0].error_number == 2017
    assert parsed.errors[0].error == "Invalid job id"
    assert parsed.warnings is None


def test_a_submit_without_a_job_id_has_none() -> None:
    parsed = post_job_submit.parse(
        answer({"warnings": [{"description": "unable to parse", "source": "tasks"}]})
    )
    assert parsed.job_id is UNSET


def test_rows_of_states() -> None:
    rows = [{"job_id": "143_1", "state": ["PENDING"]}, {"job_id": "145+1", "state": ["RUNNING"]}]
    parsed = operation("slurm.get_jobs_state").parse(answer({"jobs": rows}))
    assert [(row.job_id, row.state) for row in parsed.jobs] == [
        ("143_1", ["PENDING"]),
        ("145+1", ["RUNNING"]),
    ]


def test_not_a_number_does_not_lose_the_answer() -> None:
    body = b'{"nodes": [{"name": "n1", "cpu_load": NaN, "cpus": 4}], "last_update": {"number": Infinity}}'
    parsed = operation("slurm.get_nodes").parse(answer(body))
    assert parsed.nodes[0].name == "n1"
    assert math.isnan(parsed.nodes[0].cpu_load)


@pytest.mark.parametrize(
    ("body", "code", "content_type", "words"),
    [
        (b"Authentication failure", 401, "text/plain", "Authentication failure"),
        (b"<html>proxy</html>", 502, "text/html", "text/html"),
        (b"", 400, "", "empty"),
        (b"", 200, "application/json", "empty"),
        (b"  \n", 200, "application/json", "empty"),
        (b"{}", 200, "", "no content type"),
        (b'{"jobs": [{"job_id": 1', 200, "application/json", "cannot be read"),
        (b"\xff\xfe{", 200, "application/json", "cannot be read"),
        (b"[" * 100_000, 200, "application/json", "cannot be read"),
        (b"null", 200, "application/json", "no object"),
        (b"[]", 200, "application/json", "no object"),
        (b'"ok"', 200, "application/json", "no object"),
        (b"{}", 302, "application/json", "redirect"),
    ],
)
def test_what_is_no_answer_is_one_typed_error(body: bytes, code: int, content_type: str, words: str) -> None:
    with pytest.raises(UnexpectedResponse, match=words) as caught:
        get_job.parse(answer(body, code, content_type))
    assert (caught.value.status_code, caught.value.content_type, caught.value.body) == (
        code,
        content_type,
        body,
    )


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_json_is_known_by_its_media_type(content_type: str) -> None:
    assert operation("slurm.get_job").parse(answer(JOB_ANSWER, 200, content_type)).jobs[0].job_id == 143


OBJECTS = [
    pytest.param(module, document, path, id=".".join(map(str, path)))
    for module, document in DOCUMENTS
    for path in places(document)
    if isinstance(path[-1], str) and isinstance(at(document, path), dict | list)
]
HOSTILE: list[object] = [[None], [{}, None], [5, {}], [[1]], {"unheard": {}}, 5, "text", True]


@pytest.mark.parametrize("hostile", HOSTILE, ids=json.dumps)
@pytest.mark.parametrize(("module", "document", "path"), OBJECTS)
def test_a_list_or_object_of_another_shape_is_refused(
    module: ModuleType, document: dict[str, Any], path: tuple[Any, ...], hostile: object
) -> None:
    """The generated models let such a value through under a wrong type; decode finds it."""
    wrong = answer(changed(document, path, hostile))
    if isinstance(hostile, dict) and isinstance(at(document, path), dict):
        assert at(module.parse(wrong).to_dict(), path) == hostile  # unknown keys of an object are kept
        return
    with pytest.raises(UnexpectedResponse, match="unexpected shape"):
        module.parse(wrong)


@pytest.mark.parametrize("hostile", [{"x": 1}, ["x"]], ids=json.dumps)
def test_an_object_in_place_of_a_text_is_refused(hostile: object) -> None:
    with pytest.raises(UnexpectedResponse, match=r"unexpected shape: jobs\.name"):
        get_job.parse(answer(changed(JOB_ANSWER, ("jobs", 0, "name"), hostile)))


def test_the_error_shows_no_body_but_plain_text_and_survives_pickling() -> None:
    with pytest.raises(UnexpectedResponse) as caught:
        get_job.parse(answer(b'{"environment": ["SECRET=1"', 200))
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.status_code, again.body, str(again)) == (200, caught.value.body, str(caught.value))

"""The rows of rows.csv that are in scope, each a test that is named by its id.

A row is judged as a user of Kubernetes sees it, and each test checks what upstream's own test of
the row (column ``upstream_test``) checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fidelity.site import Site, site
from tests.fidelity.specs import Images
from tests.fidelity.ways import Below, Cluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("kube")
            item.add_marker("fidelity")


@pytest.fixture(scope="session")
def virtual_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """This process's node."""
    with site(tmp_path_factory.mktemp("fidelity")) as made:
        yield made


@pytest.fixture(scope="session")
def images(virtual_node: Site) -> Images:
    """The lab's images."""
    return Images(virtual_node.slurm.registry)


@pytest.fixture
def cluster(virtual_node: Site) -> Iterator[Cluster]:
    """Pods through the API server."""
    made = Cluster(virtual_node)
    yield made
    made.clean_up()


@pytest.fixture
def below(virtual_node: Site) -> Iterator[Below]:
    """Pods that the lab's API server cannot carry."""
    made = Below(virtual_node)
    yield made
    made.clean_up()

"""Everything below this directory is of the layer `unit`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("unit")


@pytest.fixture(autouse=True)
def plain_logging() -> Iterator[None]:
    """A daemon's command that runs in this process configures the log for its own standard error."""
    yield
    structlog.reset_defaults()

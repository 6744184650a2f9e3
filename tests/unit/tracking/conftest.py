"""The driver on fakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes.world import World

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)

"""Fixtures of the tests that call other libraries."""

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub is not asked; what another library warns of is not our fault."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

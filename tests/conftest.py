"""One thread a test process: several processes share the cores, and threads that wait for one another are slow."""

import gc
import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["VITRAL_LANG"] = "en"  # whatever the system speaks

from collections.abc import Generator, Iterator

import hypothesis
import pytest

from vitral.core import parts
from vitral.core.language import set_language

# A busy machine is no failure: nothing here is timed. A night (`make test-full`) draws five times as many examples.
EXAMPLES = 100 if os.environ.get("VITRAL_FULL") == "1" else 20
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes stays to the end: Python need not look through it for garbage, then or during the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    """A test that chooses a language chooses it for itself alone."""
    yield
    set_language("en")


@pytest.fixture(autouse=True)
def _without_own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that registers or imports parts does so for itself alone: a worker that it starts would import them."""
    monkeypatch.setattr(parts, "_parts", {})
    monkeypatch.setattr(parts, "_imported", {})


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared texts go to a folder of the tests, for those that ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

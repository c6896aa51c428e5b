"""One thread a test process: several processes share the cores, and threads that wait for one another are slow."""

import gc
import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["VITRAL_LANG"] = "en"  # whatever the system speaks

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from filelock import FileLock

from vitral.core import parts
from vitral.core.language import set_language

# A busy machine is no failure: nothing here is timed. A night (`make test-full`) draws more examples.
EXAMPLES = 100 if os.environ.get("VITRAL_FULL") == "1" else 20
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("untimed")

TINY = ["model.d_model=12", "model.num_layers=1", "model.num_heads=3", "model.context_length=11", "model.dropout=0.0"]
SHORT = ["training.steps=5", "training.evaluate_every=5", "training.batch_size=7", "training.sample_every=5"]
SETTINGS = [word for setting in [*TINY, *SHORT, "training.sample_tokens=13"] for word in ("--set", setting)]

Once = Callable[[str, Callable[[Path], object]], Path]


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


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared texts go to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """`once(name, make)`: the folder that `make(folder)` fills, for all processes of the session; read-only.

    The first process that asks makes it, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    shared.mkdir(exist_ok=True)

    def get(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = shared / name, shared / f"{name}.made"
        with FileLock(shared / f"{name}.lock"):
            if not made.exists():
                make(folder)
                made.touch()
        return folder

    return get


@pytest.fixture(scope="session")
def tiny_run(once: Once) -> Path:
    """A run of five steps on the bundled play, for all that only look at one."""
    from vitral.app.terminal import run

    def make(folder: Path) -> None:
        assert run(["train", "sample", "--out", str(folder), *SETTINGS]) == 0

    return once("tiny", make)

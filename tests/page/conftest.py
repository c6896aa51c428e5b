"""Pages of models: exported once for all processes of the session."""

import pickle
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from foreign import run_of
from pages import Carried, chromium, content_of
from symbols import symbolic_lengths
from variants import GENERATED, TEXT, TOKENIZER, VARIANTS, made

from vitral.model import Transformer
from vitral.page.content import PageContent
from vitral.runs import LoadedRun, load_run
from vitral.runs.checkpoint import as_tensors

TWO_LAYERS = ("pre", "lstm", "masks by block, some biases")


@pytest.fixture(autouse=True, scope="module")
def _symbols() -> Iterator[None]:
    with symbolic_lengths():
        yield


@pytest.fixture(scope="module")
def window(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One window for the tests of a file, as its WINDOW says."""
    with chromium(**request.module.WINDOW) as page:
        yield page


@pytest.fixture(scope="session")
def carried(once: Callable[[str, Callable[[Path], object]], Path]) -> Carried:
    """`carried("post")`: a model of a variant, and what its page carries; of one layer if not in `TWO_LAYERS`."""

    @cache
    def get(variant: str) -> tuple[Transformer, PageContent]:
        model = made(GENERATED[variant] if variant in TWO_LAYERS else {"num_layers": 1} | GENERATED[variant])

        def make(folder: Path) -> None:
            folder.mkdir()
            (folder / "content").write_bytes(pickle.dumps(content_of(model, TOKENIZER, TEXT)))

        return model, pickle.loads((once(f"page {variant}", make) / "content").read_bytes())

    return get


@pytest.fixture(scope="session")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedRun]:
    """`filmed("pre")`: a run of a variant whose film has other weights after the steps 10 and 14."""

    @cache
    def get(variant: str) -> LoadedRun:
        run = run_of(made(VARIANTS[variant]), tmp_path_factory.mktemp("film") / "run")
        for step in (10, 14):
            weights = made(VARIANTS[variant], seed=step).state_dict()
            run.folder.write_frame(step, as_tensors({name: one.half() for name, one in weights.items()}))
        run.folder.save(run.folder.load(warn=print), keep=1)
        return load_run(run.folder.path)

    return get

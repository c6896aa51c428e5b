"""Pages of models: exported once for all processes of the session."""

import pickle
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pages import Carried, content_of
from symbols import symbolic_lengths
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.model import Transformer
from vitral.page.content import PageContent

TWO_LAYERS = ("pre", "lstm", "masks by block, some biases")


@pytest.fixture(autouse=True, scope="module")
def _symbols() -> Iterator[None]:
    with symbolic_lengths():
        yield


@pytest.fixture(scope="session")
def carried(once: Callable[[str, Callable[[Path], object]], Path]) -> Carried:
    """`carried("post")`: a model of a variant, and what its page carries; of one layer if not in `TWO_LAYERS`."""

    @cache
    def get(variant: str) -> tuple[Transformer, PageContent]:
        model = made(VARIANTS[variant] if variant in TWO_LAYERS else {"num_layers": 1} | VARIANTS[variant])

        def make(folder: Path) -> None:
            folder.mkdir()
            (folder / "content").write_bytes(pickle.dumps(content_of(model, TOKENIZER, TEXT)))

        return model, pickle.loads((once(f"page {variant}", make) / "content").read_bytes())

    return get

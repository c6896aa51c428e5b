"""Runs outside a study that its arms begin from, such as imported models: their model and their tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.data.config import CorpusConfig
from vitral.data.tokenizers import Tokenizer
from vitral.runs import SealedRun, enter
from vitral.studies.design import Arm, Study

TOKENS = ("tokenizer", "specials")
"""Keys of the corpus that are those of the run."""


def source_of(arm: Arm) -> SealedRun | None:
    """The run outside the study that an arm begins from; None if there is none.

    Raises:
        UsageError: the folder is no run.
    """
    return None if arm.run is None else enter(Path(arm.run), lambda line: None)


def beginning(arm: Arm, base: Mapping[str, Any]) -> dict[str, Any]:
    """The base's configuration with the model and the tokens of the run that an arm begins from."""
    source = source_of(arm)
    if source is None:
        return dict(base)
    corpus = {key: value for key, value in base["corpus"].items() if key not in TOKENS}
    corpus["tokenizer"] = source.config.corpus.plain()["tokenizer"]
    if specials := tuple(source.tokenizer.declared):
        corpus["specials"] = list(specials)
    return {**base, "model": source.config.model.plain(), "corpus": corpus}


def tokenizers_of(study: Study) -> dict[str, Tokenizer]:
    """The tokenizers of the runs that arms begin from, by `tokens_key`; every arm with these tokens uses them.

    Raises:
        UsageError: two runs have different tokenizers of one kind, so that losses could not be compared.
    """
    found: dict[str, Tokenizer] = {}
    for arm in study.arms:
        source = source_of(arm)
        if source is None:
            continue
        former = found.setdefault(tokens_key(source.config.corpus), source.tokenizer)
        if former.plain() != source.tokenizer.plain():
            raise UsageError(
                "study {study}, arm {arm}: the tokenizer of {run} is not that of the run of another arm; put them in "
                "two studies",
                study=study.name,
                arm=arm.name,
                run=arm.run,
            )
    return found


def tokens_key(config: CorpusConfig) -> str:
    """What a configuration says of its tokens."""
    plain = config.plain()
    return json.dumps({key: plain.get(key) or None for key in TOKENS}, sort_keys=True)

"""References of the measures of words: n-grams know neighbours alone, and contexts are compared before attention."""

import numpy as np
import pytest

from vitral.data import Split, char_tokenizer
from vitral.inspection.word_lists import PairKind, Sense
from vitral.inspection.word_references import context_separations, counted_pairs
from vitral.inspection.words import item_scores
from vitral.model import ModelConfig, Transformer

TEXT = "\nthe d is.\nthe ds are.\n" * 40
TOKENIZER = char_tokenizer("".join(sorted(set(TEXT + "drouna"))))


def test_ngrams_agree_with_the_word_beside_and_not_with_one_further_off() -> None:
    tokens = TOKENIZER.encode(TEXT)
    train = Split(np.asarray(tokens), np.array([[0, len(tokens)]]))
    kinds = [
        PairKind(
            kind="near",
            templates=("the {subject} {element}.",),
            subjects=(("d", "ds"),),
            elements=(("is", "are"),),
        ),
        PairKind(
            kind="far",
            templates=("the {subject} the d the {element}.",),
            subjects=(("d", "ds"),),
            elements=(("is", "are"),),
        ),
    ]
    found = counted_pairs(TOKENIZER, train, kinds)
    assert item_scores(found, "near") == {0: 1.0}
    # The letters before the form are the same for both subjects: right once and wrong once.
    assert item_scores(found, "far") == {1: 0.5}
    assert found[2]["preference"] == pytest.approx(-found[3]["preference"])


def test_pairs_of_other_letters_have_no_preference() -> None:
    tokens = TOKENIZER.encode(TEXT)
    kind = PairKind(kind="odd", templates=("{subject} {element}",), subjects=(("Q", "q"),), elements=(("is", "are"),))
    found = counted_pairs(TOKENIZER, Split(np.asarray(tokens), np.array([[0, len(tokens)]])), [kind])
    assert [pair["preference"] for pair in found] == [None, None]


def test_contexts_that_differ_between_senses_are_apart() -> None:
    """Within a sense the words before are the same, across senses they share one space."""
    config = ModelConfig.parse({"context_length": 16, "d_model": 8, "num_heads": 2, "num_layers": 1})
    model = Transformer(config, TOKENIZER.vocab_size, seed=1).eval()
    sense = Sense(
        word="run", first="one", second="two", first_sentences=("dd run",) * 2, second_sentences=("oo run",) * 2
    )
    alike = Sense(
        word="run", first="one", second="two", first_sentences=("dd run",) * 2, second_sentences=("dd run",) * 2
    )
    assert context_separations(model, TOKENIZER, [sense])["run"] > 0.1
    assert context_separations(model, TOKENIZER, [alike])["run"] == pytest.approx(0.0, abs=1e-12)
    assert context_separations(model, TOKENIZER, [sense.model_copy(update={"word": "bank"})]) == {}

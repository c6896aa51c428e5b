"""Filling gaps: against every filling tried one by one."""

import math
from itertools import product

import pytest
import torch

from tests.helpers.small_models import lively
from vitral.core.errors import UsageError
from vitral.data.tokenizers import bpe_tokenizer, char_tokenizer, with_special_tokens
from vitral.evaluation import Masking, fill

TOKENIZER = char_tokenizer("abcdefghijk ")
MODEL = lively(attention={"mask": "bidirectional"}).float()
MASKING = Masking(0.15, token=0)


def chances(ids: list[int], position: int) -> list[float]:
    """Of every token at a place."""
    hidden = torch.tensor([[0 if at == position else token for at, token in enumerate(ids)]])
    return MODEL(hidden)[0, position].double().softmax(-1).tolist()


def test_a_gap_of_one_token_is_ranked_by_the_models_own_probabilities() -> None:
    filled = fill(MODEL, TOKENIZER, "ab[MASK]da", MASKING, top=12)
    expected = chances(TOKENIZER.encode("abada").tolist(), 2)
    (ranked,) = filled.gaps
    assert {one.tokens[0]: one.probability for one in ranked} == pytest.approx(dict(enumerate(expected[1:], 1)))
    assert [one.probability for one in ranked] == sorted((one.probability for one in ranked), reverse=True)
    assert filled.text == f"ab{ranked[0].text}da"


def test_a_gap_of_two_tokens_is_ranked_as_all_pairs_are_by_the_chain_rule() -> None:
    expected = {}
    for pair in product(range(1, 13), repeat=2):
        begun = [*TOKENIZER.encode("ab").tolist(), pair[0], 0, 4]
        expected[pair] = chances([1, 2, 0, 0, 4], 2)[pair[0]] * chances(begun, 3)[pair[1]]
    (ranked,) = fill(MODEL, TOKENIZER, "ab[MASK]d", MASKING, tokens=2, top=144).gaps
    assert {one.tokens: one.probability for one in ranked} == pytest.approx(expected)


def test_several_gaps_are_ranked_apart_and_filled_from_left_to_right() -> None:
    filled = fill(MODEL, TOKENIZER, "[MASK]b[MASK]d", MASKING, top=2)
    first, second = filled.gaps
    assert second[0].probability == pytest.approx(max(chances([0, 2, 0, 4], 2)[1:]))
    chosen = chances([first[0].tokens[0], 2, 0, 4], 2)
    assert TOKENIZER.encode(filled.text)[2] == max(range(1, 13), key=chosen.__getitem__)


def test_the_pseudo_perplexity_hides_each_token_in_its_turn() -> None:
    ids = TOKENIZER.encode("a bad").tolist()
    nats = [-math.log(chances(ids, position)[token]) for position, token in enumerate(ids)]
    filled = fill(MODEL, TOKENIZER, "a bad", MASKING)
    assert (filled.text, filled.gaps, filled.scored) == ("a bad", (), 5)
    assert filled.pseudo_perplexity == pytest.approx(math.exp(sum(nats) / 5))


def test_a_token_that_begins_a_word_brings_its_space() -> None:
    tokenizer = with_special_tokens(bpe_tokenizer([(32, 98), (256, 101)]), ["<MASK>"])
    model = lively(tokenizer.vocab_size, attention={"mask": "bidirectional"})
    filled = fill(model, tokenizer, "to [MASK] or", Masking(0.15, token=258), top=258)
    assert " be" in {one.text for one in filled.gaps[0]}
    assert filled.scored == len("to") + 1 + len(" or")
    assert all(258 not in one.tokens for one in filled.gaps[0])


@pytest.mark.parametrize("text", ["", "a" * 8])
def test_a_text_must_fit(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 7"):
        fill(MODEL, TOKENIZER, text, MASKING)

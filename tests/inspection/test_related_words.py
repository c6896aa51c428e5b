"""Scores of similar words and weights on subjects, on models whose scores are set by hand."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch

from vitral.data import Split, bpe_tokenizer, char_tokenizer
from vitral.inspection import agreeing_weights, similar_word_scores
from vitral.inspection.word_lists import PairKind
from vitral.inspection.words import REACH, co_occurrences, cosines, positive_pmi
from vitral.model import ModelConfig, Transformer

LETTERS = "abcdefghijklmnopqrstuvw"
TOKENIZER = bpe_tokenizer(tuple((32, ord(letter)) for letter in LETTERS))
WORDS = np.arange(256, 256 + len(LETTERS))


def text(seed: int, length: int) -> Split:
    """Words of a Markov chain, one segment."""
    random = np.random.default_rng(seed)
    chain = np.random.default_rng(0).dirichlet(np.full(len(WORDS), 0.3), size=len(WORDS))
    tokens = [0]
    while len(tokens) < length:
        tokens.append(int(random.choice(len(WORDS), p=chain[tokens[-1]])))
    return Split((256 + np.array(tokens)).astype(np.uint16), np.array([[0, length]]))


def with_scores(scores: torch.Tensor, context_length: int, by_key: torch.Tensor | None = None) -> Transformer:
    """A model of one head whose score of query i and key j is scores[i, j], plus a number for each key."""
    size = len(scores)
    config = {"norm": "none", "positions": "none", "feed_forward": "none", "attention": {"scale": "none"}}
    model = Transformer(
        ModelConfig.parse(
            {"d_model": size, "num_layers": 1, "num_heads": 1, "context_length": context_length, **config}, "model"
        ),
        size,
    ).eval()
    with torch.no_grad():
        model.token_embedding.weight.copy_(torch.eye(size))
        projection: Any = cast(Any, model.blocks[0]).attn.in_proj
        projection.weight.zero_()
        projection.bias.zero_()
        projection.weight[:size] = scores.T
        projection.weight[size : 2 * size] = torch.eye(size)
        if by_key is not None:
            projection.bias[:size] = by_key
    return model


def similarity(train: Split) -> torch.Tensor:
    """The similarity of all tokens by counted contexts; 0 for those that are no words."""
    counted = torch.from_numpy(positive_pmi(co_occurrences(train, WORDS, TOKENIZER.vocab_size, reach=REACH)))
    whole = torch.zeros(TOKENIZER.vocab_size, TOKENIZER.vocab_size)
    whole[256:, 256:] = cosines(counted, counted).float()
    return whole


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_are_the_similarity_correlate_fully_whatever_each_key_has_besides(sign: int) -> None:
    train, test = text(1, 20_000), text(2, 700)
    key = torch.linspace(-3, 3, TOKENIZER.vocab_size)
    model = with_scores(sign * similarity(train), 13, key)
    found = similar_word_scores(model, TOKENIZER, train, test, windows=29, most_words=50)
    assert found is not None
    assert found["words"] == len(WORDS)
    (((head,),),) = (found["heads"],)
    assert head["correlation"] == pytest.approx(sign, abs=1e-3)
    assert max(map(abs, head["shuffled"])) < 0.5
    assert np.mean(head["shuffled"]) == pytest.approx(0, abs=0.1)


CHARACTERS = char_tokenizer("".join(sorted(set("\n The keys are is here. The ray The sky"))))
KIND = PairKind.parse(
    {
        "kind": "agreement",
        "templates": ["{subject} {element} here."],
        "elements": [["is", "are"]],
        "subjects": [["The key", "The keys"], ["The ray", "The rays"], ["The sky", "The zoos"]],
    },
    "kind",
)


def score(query: str, key: str) -> float:
    """The verb's last letter looks for the last letter of a subject that agrees with it."""
    return 1.7 if (query, key) in {("e", "s"), ("s", "y")} else 0.0


def weight(sentence: str, subject: str, verb: str) -> float:
    """The softmax of the scores of the verb's last letter, worked out letter by letter."""
    end = sentence.index(f" {verb}") + 1 + len(verb)
    keys = "\n" + sentence[:end]
    exponentials = [math.exp(score(keys[-1], key)) for key in keys]
    return exponentials[len(subject)] / sum(exponentials)


def test_the_weight_on_a_subject_is_that_of_both_forms_and_a_sentence_without_tokens_is_left_out() -> None:
    size = CHARACTERS.vocab_size
    letters = [CHARACTERS.decode([token]) for token in range(size)]
    scores = torch.tensor([[score(query, key) for key in letters] for query in letters])
    (key, ray) = agreeing_weights(with_scores(scores, 31), CHARACTERS, [KIND])  # "zoos" has a letter without a token
    assert [key["subject"], ray["subject"]] == ["The key", "The ray"]
    right = [weight("The key is here.", "The key", "is"), weight("The keys are here.", "The keys", "are")]
    wrong = [weight("The key are here.", "The key", "are"), weight("The keys is here.", "The keys", "is")]
    assert key["agree"][0][0] == pytest.approx(np.mean(right), rel=1e-5)
    assert key["disagree"][0][0] == pytest.approx(np.mean(wrong), rel=1e-5)
    assert np.mean(right) > np.mean(wrong)

"""Counted contexts, senses, minimal pairs and weights on subjects: by hand on a few words, and of a small model."""

import json
import math
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from pieces import ten_words

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, Dataset, Split, bpe_tokenizer, char_tokenizer, prepare
from vitral.inspection.minimal_pairs import (
    MinimalPair,
    PairKind,
    agreeing_weights,
    counted_pairs,
    item_scores,
    language_of,
    log_probability,
    pair_scores,
    pairs_of,
    word_lists,
)
from vitral.inspection.words import (
    REACH,
    co_occurrences,
    cosines,
    passage,
    positive_pmi,
    similar_word_scores,
    whole_words,
    word_measures,
    word_position,
)
from vitral.model import ModelConfig, Transformer

# " th" is 256, " the" 257, " a" 258
TOKENIZER = bpe_tokenizer(((32, 116), (256, 104), (257, 101), (32, 97)))
SPACED_THE, SPACED_A = 258, 259


def part_of(*segments: str | list[int]) -> Split:
    """These stretches as tokens."""
    pieces = [np.array(TOKENIZER.encode(each) if isinstance(each, str) else each) for each in segments]
    ends = np.cumsum([0, *map(len, pieces)])
    return Split(np.concatenate(pieces).astype(np.uint16), np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64))


def test_whole_words_are_not_parts_of_longer_ones() -> None:
    part = part_of(" the the them, a at at at the")
    result = {least: whole_words(TOKENIZER, part, least_count=1, most=9, least_share=least) for least in (0.0, 0.5)}
    # " the" ends a word in 3 of 4 places, " a" in 1 of 4.
    assert result[0.0].tolist() == [SPACED_THE, SPACED_A]
    assert result[0.5].tolist() == [SPACED_THE]
    assert whole_words(TOKENIZER, part, least_count=5, most=9, least_share=0.0).tolist() == []
    assert whole_words(TOKENIZER, part, least_count=1, most=1, least_share=0.0).tolist() == [SPACED_THE]


def test_contexts_are_counted_on_either_side_and_not_across_a_border() -> None:
    part = part_of([1, 2, 3, 1], [2, 2])
    counts = co_occurrences(part, np.array([2, 1]), 4, reach=2)
    before, after = counts[:, :4], counts[:, 4:]
    assert before.tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert after.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]


def test_positive_pmi_is_worked_by_hand() -> None:
    result = positive_pmi(np.array([[6, 2], [0, 4]]))
    # p(0, 0) = 6/12 against 8/12 · 6/12; p(1, 1) = 4/12 against 4/12 · 6/12; p(0, 1) is below chance.
    assert np.allclose(result, [[math.log(1.5), 0], [0, math.log(2)]])


def test_pairs_differ_in_the_element_alone_and_balance_its_forms() -> None:
    kind = PairKind(
        kind="agreement",
        templates=("{subject} near {other} {element}.", "{subject} {element} by {same}."),
        subjects=(("A dog", "Dogs"), ("A cat", "Cats"), ("A cow", "Cows")),
        elements=(("runs", "run"), ("was", "were")),
        between=(("a man", "men"), ("a boy", "boys")),
    )
    pairs = pairs_of(kind)
    assert len(pairs) == 6
    assert pairs[0] == MinimalPair("A dog near men runs.", "A dog near men run.")
    assert pairs[3] == MinimalPair("Cats run by boys.", "Cats runs by boys.")
    assert pairs[4] == MinimalPair("A cow near men was.", "A cow near men were.")


SHORT = char_tokenizer("\n ab.")


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = ModelConfig.parse({"context_length": 13, "d_model": 6, "num_heads": 2, "num_layers": 1})
    model = Transformer(config, SHORT.vocab_size, seed=3).eval()
    with torch.no_grad():
        model.token_embedding.weight.normal_(generator=torch.Generator().manual_seed(1))
    return model


def test_log_probability_is_the_chain_of_conditionals(model: Transformer) -> None:
    tokens, total = SHORT.encode("ab."), 0.0
    for position in range(3):
        given = torch.tensor([[SHORT.start, *tokens[:position].tolist()]])
        with torch.inference_mode():
            total += float(model(given)[0, -1].double().log_softmax(-1)[tokens[position]])
    assert log_probability(model, SHORT, "ab.") == pytest.approx(total, abs=1e-5)
    with pytest.raises(UsageError, match="14 tokens"):
        log_probability(model, SHORT, "a" * 14)


def test_a_word_is_found_where_its_last_token_is() -> None:
    for sentence, word, last in (("So the man, then", "the", SPACED_THE), ("man, at all", "man", ord("n"))):
        result = word_position(TOKENIZER, sentence, word)
        assert result is not None
        assert (int(result[0][0]), int(result[0][result[1]])) == (ord("\n"), last)
    assert word_position(char_tokenizer("\n amn"), "a man", "man") is not None
    assert word_position(char_tokenizer("\n amn"), "a man!", "man") is None  # a character without a token


def test_the_language_is_that_of_the_most_frequent_words() -> None:
    assert language_of("The king and the queen of that land.") == "en"
    assert language_of("Os olhos que não viam uma luz com os seus.") == "pt"
    french = "Il dit que la nuit est belle, et la mer chante au loin sous le ciel noir, sans vent ni voile ici et là."
    for text in (french, ""):
        with pytest.raises(UsageError, match=r"none of the languages .*\(en, pt\)"):
            language_of(text)


@pytest.mark.parametrize("name", ["en", "pt"])
def test_every_language_has_words_sentences_and_pairs(name: str) -> None:
    language, letters = word_lists()[name], bpe_tokenizer(())
    for sense in language.senses:
        for sentence in (*sense.first_sentences, *sense.second_sentences):
            result = word_position(letters, sentence, sense.word)
            assert result is not None
            tokens, position = result
            assert len(re.findall(rf"\b{sense.word}\b", sentence)) == 1
            # The words that decide the sense come before the word: a causal model sees nothing after it.
            assert position > len(sense.word.encode()) + 8
            assert bytes(tokens[1 : position + 1].tolist()).decode().endswith(sense.word)
        # The word right before it is the same in both senses, so that copying it separates nothing.
        sentences = (*sense.first_sentences, *sense.second_sentences)
        before = {re.split(rf"\b{sense.word}\b", sentence)[0].split()[-1] for sentence in sentences}
        assert len(before) == 1
        assert len(set(sentences)) == 6
    pairs = [pair for kind in language.pairs for pair in pairs_of(kind)]
    assert 60 <= len(pairs) <= 130
    for pair in pairs:
        one, other = pair.good.split(), pair.bad.split()
        assert sum(left != right for left, right in zip(one, other, strict=True)) == 1


def dataset_of(path: Path) -> Dataset:
    """A text of ten words drawn by chance, in tokens of a small BPE."""
    tokenizer = {"name": "bpe", "vocab_size": 280}
    return prepare(CorpusConfig.parse({"source": ten_words(path, 1500), "tokenizer": tokenizer, "split": "tail"}))


def measured(dataset: Dataset, **changes: Any) -> dict[str, Any]:
    """The measures of a fresh model of two layers."""
    sizes = {"d_model": 6, "num_heads": 2, "num_layers": 2}
    model = Transformer(ModelConfig.parse(sizes | changes), dataset.tokenizer.vocab_size, seed=3).eval()
    return word_measures(model, dataset.tokenizer, dataset.splits, most_words=300)


def test_word_measures_are_plain_data_twice_the_same(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "words.txt")
    data = measured(dataset, context_length=64)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data == measured(dataset, context_length=64)
    assert data["language"] == "en"
    assert data["neighbours"] is None  # a text of ten words
    assert len(data["pairs"]) == 120
    # Most sentences are longer than half of the context, in tokens this short; those that fit start from one vector.
    for sense in data["senses"]:
        assert (sense["within"][0], sense["across"][0]) == (pytest.approx(1.0), pytest.approx(1.0))


def test_scores_of_pairs_count_a_tie_as_a_half_and_leave_out_what_was_not_scored() -> None:
    preferences = [2.0, -1.5, 1e-6, None, -3.0, 3.0]
    pairs = [{"kind": "ab"[index % 2], "preference": one} for index, one in enumerate(preferences)]
    assert pair_scores(pairs) == [1.0, 0.0, 0.5, 0.0, 1.0]
    assert pair_scores(pairs, "b") == [0.0, 1.0]


def test_the_passage_before_a_sentence_ends_a_line() -> None:
    tokenizer = bpe_tokenizer(())
    tokens = np.frombuffer(b"a\nbcd\nef\n\ngh", dtype=np.uint8).astype(np.uint16)
    part = Split(tokens, np.array([[0, 2], [2, 12]]))
    assert bytes(passage(tokenizer, part, 4).tolist()) == b"bcd\n"
    assert bytes(passage(tokenizer, part, 6).tolist()) == b"cd\nef\n"
    assert torch.equal(passage(tokenizer, part, 11), torch.full((11,), 10))


AGREEING = "\nthe d is.\nthe ds are.\n" * 40
LETTERS = char_tokenizer("".join(sorted(set(AGREEING + "drouna"))))


def test_ngrams_agree_with_the_word_beside_and_not_with_one_further_off() -> None:
    tokens = LETTERS.encode(AGREEING)
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
    result = counted_pairs(LETTERS, train, kinds)
    assert item_scores(result, "near") == {0: 1.0}
    # The letters before the form are the same for both subjects: right once and wrong once.
    assert item_scores(result, "far") == {1: 0.5}
    assert result[2]["preference"] == pytest.approx(-result[3]["preference"])


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


CHARACTERS = char_tokenizer("".join(sorted(set("\n The keys are is here. The ray The sky"))))
KIND = PairKind(
    kind="agreement",
    templates=["{subject} {element} here."],
    elements=[["is", "are"]],
    subjects=[["The key", "The keys"], ["The ray", "The rays"], ["The sky", "The zoos"]],
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


SPELLED = "abcdefghijklmnopqrstuvw"
SPACED = bpe_tokenizer(tuple((32, ord(letter)) for letter in SPELLED))
WHOLE = np.arange(256, 256 + len(SPELLED))


def chain_of_words(seed: int, length: int) -> Split:
    """Words of a Markov chain, one segment."""
    random = np.random.default_rng(seed)
    chain = np.random.default_rng(0).dirichlet(np.full(len(WHOLE), 0.3), size=len(WHOLE))
    tokens = [0]
    while len(tokens) < length:
        tokens.append(int(random.choice(len(WHOLE), p=chain[tokens[-1]])))
    return Split((256 + np.array(tokens)).astype(np.uint16), np.array([[0, length]]))


def similarity(train: Split) -> torch.Tensor:
    """The similarity of all tokens by counted contexts; 0 for those that are no words."""
    counted = torch.from_numpy(positive_pmi(co_occurrences(train, WHOLE, SPACED.vocab_size, reach=REACH)))
    whole = torch.zeros(SPACED.vocab_size, SPACED.vocab_size)
    whole[256:, 256:] = cosines(counted, counted).float()
    return whole


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_are_the_similarity_correlate_fully_whatever_each_key_has_besides(sign: int) -> None:
    train, test = chain_of_words(1, 20_000), chain_of_words(2, 700)
    key = torch.linspace(-3, 3, SPACED.vocab_size)
    model = with_scores(sign * similarity(train), 13, key)
    result = similar_word_scores(model, SPACED, train, test, windows=29, most_words=50)
    assert result is not None
    (((head,),),) = (result["heads"],)
    assert head["correlation"] == pytest.approx(sign, abs=1e-3)
    assert max(map(abs, head["shuffled"])) < 0.5
    assert np.mean(head["shuffled"]) == pytest.approx(0, abs=0.1)

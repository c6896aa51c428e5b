"""The loss of records counts answers alone; exact answers are those that are generated; classifiers by hand."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import attentive, table

from vitral.data import CorpusConfig, Dataset, Split, prepare
from vitral.data.answers import ANSWER, END, pair
from vitral.data.batches import windows
from vitral.decoding import Sampling, generate
from vitral.evaluation import evaluate_split, ngram_baselines, token_losses
from vitral.evaluation.losses import AnswerScore, reading_of_config
from vitral.evaluation.measures import MAJORITY, NAIVE_BAYES, label_baselines
from vitral.model import ModelConfig, Transformer


def of_lines(path: Path, kind: str, lines: list[dict[str, Any]], **corpus: Any) -> Dataset:
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return prepare(CorpusConfig.parse({"source": str(path), "records": kind, **corpus}))


def asking(*questions: str) -> list[dict[str, Any]]:
    chats = [("user", one) if n % 2 == 0 else ("assistant", one) for n, one in enumerate(questions)]
    return [{"role": role, "content": content} for role, content in chats]


def test_a_changed_prompt_changes_no_target(tmp_path: Path) -> None:
    """Of a model that reads one token back the loss of a chat stays the same, whatever the user says."""
    losses = []
    for number, said in enumerate(("hello", "abcdeolh", "e")):
        chats = [
            {"messages": messages}
            for more in ("", "l")
            for messages in (asking(said + more, "abba", said[::-1], "hole"), asking("abcdehol" + more, "a"))
        ]
        dataset = of_lines(tmp_path / f"{number}.jsonl", "chats", chats)
        model = table(np.random.default_rng(1).normal(size=(13, 13)).tolist(), context_length=40)
        every = [evaluate_split(model, split, dataset.tokenizer) for split in dataset.splits.values()]
        losses.append((sum(one.loss * one.num_targets for one in every), sum(one.num_targets for one in every)))
    assert [one[1] for one in losses] == [2 * (5 + 5 + 2)] * 3
    assert [one[0] for one in losses[1:]] == pytest.approx([losses[0][0]] * 2)


SHAPES: list[dict[str, Any]] = [
    {"context_length": 14},
    {"shape": "encoder-decoder", "context_length": 7, "source_length": 6},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_loss_is_the_mean_over_the_answers_one_record_at_a_time(shape: dict[str, Any]) -> None:
    dataset = prepare(CorpusConfig.parse({"source": "task:reverse", "task": {"sequences": 100, "length": 6}}))
    tokenizer, split = dataset.tokenizer, dataset.splits["test"]
    model = attentive(tokenizer.vocab_size, **shape).eval()
    nats = list[float]()
    for begin, end in split.segments:
        source, _, answer = tokenizer.decode(split.tokens[begin:end]).partition(ANSWER)
        read = torch.from_numpy(tokenizer.encode(source))[None]
        answer_ids = torch.from_numpy(tokenizer.encode(f"{ANSWER}{answer}"))[None]
        with torch.inference_mode():
            if model.encoder is None:
                logits = model(torch.cat([read, answer_ids[:, :-1]], dim=1))[0, read.shape[1] :]
            else:
                logits = model(answer_ids[:, :-1], source=read)[0]
        nats += (-logits.log_softmax(-1)[torch.arange(answer_ids.shape[1] - 1), answer_ids[0, 1:]]).tolist()
    for batch_tokens in (1, 100, 4096):
        result = evaluate_split(model, split, tokenizer, batch_tokens=batch_tokens)
        assert (result.loss, result.num_targets) == (pytest.approx(np.mean(nats)), len(nats))
    assert result.num_characters == result.num_bytes == len(nats) - len(split.segments)  # the ends are no characters
    assert token_losses(model, split) == pytest.approx(np.array(nats))


def test_exact_answers_are_those_that_greedy_decoding_writes() -> None:
    dataset = prepare(CorpusConfig.parse({"task": {"name": "copy", "sequences": 100, "length": 2, "symbols": 12}}))
    tokenizer, split = dataset.tokenizer, dataset.splits["train"]
    opens, closes = tokenizer.encode(ANSWER + END).tolist()
    rows = torch.zeros(tokenizer.vocab_size, tokenizer.vocab_size)  # it always says "ab", or b after another letter
    a, b = tokenizer.encode("ab").tolist()
    rows[opens, a] = rows[a, b] = rows[b, closes] = 5.0
    model = table(rows, context_length=7)
    right = 0
    for begin, end in split.segments:
        question, _, answer = tokenizer.decode(split.tokens[begin:end]).partition(ANSWER)
        (sample,) = generate(
            model, tokenizer, [pair(question)], max_tokens=4, sampling=Sampling(temperature=0.0), stop=[END]
        )
        right += sample.text + END == answer
    assert evaluate_split(model, split, tokenizer).answers == AnswerScore(right, len(split.segments))
    some = Split(split.tokens, split.segments, split.answers)
    assert evaluate_split(table(rows, context_length=3), some, tokenizer).answers == AnswerScore(
        0, int((split.lengths <= 4).sum()), int((split.lengths > 4).sum())
    )


def test_ngrams_count_answers_with_the_question_as_context() -> None:
    dataset = prepare(
        CorpusConfig.parse({"source": "task:sort", "task": {"sequences": 200, "length": 6, "symbols": 3}})
    )
    train, test = (dataset.splits[name] for name in ("train", "test"))
    result = ngram_baselines(train, test, dataset.tokenizer.vocab_size, orders=2)

    opens = dataset.tokenizer.declared[ANSWER]

    def grams(split: Split) -> list[tuple[int, int]]:
        rows = [split.tokens[begin:end].tolist() for begin, end in split.segments]
        return [gram for row in rows for gram in list(pairwise(row))[row.index(opens) :]]

    one, two = Counter(token for _, token in grams(train)), Counter(grams(train))
    total, kinds, size = sum(one.values()), len(one), dataset.tokenizer.vocab_size
    unigram = {token: (one[token] + kinds / size) / (total + kinds) for token in range(size)}
    before = Counter(first for first, _ in two.elements())
    followers = Counter(first for first, _ in two)
    bigram = [
        (two[gram] + followers[gram[0]] * unigram[gram[1]]) / (before[gram[0]] + followers[gram[0]])
        for gram in grams(test)
    ]
    expected = [np.mean([-math.log(unigram[token]) for _, token in grams(test)]), np.mean(-np.log(bigram))]
    pairs, firsts = Counter(grams(test)), Counter(first for first, _ in grams(test))
    entropy = -sum(n * math.log(n / firsts[gram[0]]) for gram, n in pairs.items()) / sum(pairs.values())
    assert list(result.orders.values()) == pytest.approx(expected)
    assert result.test_bigram_entropy == pytest.approx(entropy)


def texts(*lines: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"text": text, "label": label} for text, label in lines]


def test_simple_classifiers_by_hand(tmp_path: Path) -> None:
    """Naive Bayes knows the words, the majority only the labels."""
    good, bad = [(f"Good book {n}", "yes") for n in range(24)], [(f"bad book {n}", "no") for n in range(24, 40)]
    lines = texts(*good, *bad)
    dataset = of_lines(tmp_path / "x.jsonl", "labels", lines)
    held = [dataset.tokenizer.decode(dataset.splits["test"].tokens[a:b]) for a, b in dataset.splits["test"].segments]
    yes = sum("yes" in one for one in held)
    result = label_baselines(dataset)
    assert result == {MAJORITY: AnswerScore(yes, len(held)), NAIVE_BAYES: AnswerScore(len(held), len(held))}


def test_a_model_of_labels_reads_the_text_alone(tmp_path: Path) -> None:
    lines = texts(*[(word, label) for label, words in (("b", "pqr"), ("a", "stu")) for word in words] * 4)
    dataset = of_lines(tmp_path / "x.jsonl", "labels", lines)
    sizes = {"context_length": 3, "d_model": 6, "num_heads": 3, "num_layers": 1, "tie_head": False}
    config = ModelConfig.parse({**sizes, "shape": "encoder", "num_labels": 2})
    model = Transformer(config, dataset.tokenizer.vocab_size, seed=2).double().eval()
    split, nats, right = dataset.splits["train"], list[float](), 0
    for begin, end in split.segments:
        text, _, label = dataset.tokenizer.decode(split.tokens[begin:end]).partition(ANSWER)
        with torch.inference_mode():
            logs = model(torch.from_numpy(dataset.tokenizer.encode(text))[None])[0].log_softmax(-1)
        number = ["a", "b"].index(label.removesuffix(END))
        nats.append(-float(logs[number]))
        right += int(logs.argmax()) == number
    result = evaluate_split(model, split, dataset.tokenizer)
    assert (result.loss, result.num_targets) == (pytest.approx(np.mean(nats)), len(nats))
    assert result.answers == AnswerScore(right, len(nats))
    assert all(targets.dim() == 1 for _, targets in windows(split, reading_of_config(config), 3))

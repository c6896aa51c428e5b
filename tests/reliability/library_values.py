"""Calls of the library with wrong values, in a process of its own: as a user runs it, without the tests' type checker.

    python library_values.py SEED COUNT FOLDER

The table has one valid call of each public function. A trial replaces one or two of its arguments by values of a shared
pool, leaves one out, or adds an unknown one. The last line printed is a JSON object: the number of calls, of refusals,
and the failures.
"""

import contextlib
import faulthandler
import json
import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import vitral
from vitral import attention, data, decoding, evaluation, explanation, inspection, model, runs, studies, training
from vitral.core import devices, names, streams
from vitral.core.edits import edits_of, read_edits
from vitral.core.errors import VitralError
from vitral.data.tasks import KeyValueRecall
from vitral.lab import free_folder, plan_study, study_progress
from vitral.lab import work as work_on_jobs
from vitral.lab.examples import gallery, preset_model
from vitral.lab.run_health import examine_run

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
MOST_SECONDS = 10.0
LONGEST_LINE = 1000
UNTRIED = (
    "compare",
    "cost_by_length",
    "study",
    "loss_claims",
    "run_study",
    "study_progress",
    "work_on_jobs",
    "load_example",
    "read_study",
    "resume",
    "training.resume",
)
"""Cases whose call is refused even without a wrong value: a valid one would take long."""
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")


class Case(NamedTuple):
    """One valid call: a name for reports, the callable, its arguments by name."""

    name: str
    function: Callable[..., Any]
    valid: dict[str, Any]


EDITS = edits_of([{"at": "embed", "do": "zero"}])


def own_norm(d_model: int) -> torch.nn.Module:
    """A factory of an own part."""
    return torch.nn.Identity()


class Hang(BaseException):
    """A call took too long."""


def scalars(folder: Path) -> list[Any]:
    return [
        *(None, True, False, "x", "", "\n\x1b[2J", "é" * 5000, -1, 0, 1.5, -0.5, 10**30, -(10**30), 2**63),
        *(math.nan, math.inf, -math.inf, 1e308, [], {}, (), [None], ["x"], [1, "x"], [[]], {"x": 1}, {1: 2}),
        *(object(), b"x", b"", int, len, Ellipsis, 1j, range(3), {1}, np.int64(3), np.float32(0.5), np.str_("x")),
        *(folder, folder / "missing", folder / "file.txt", str(folder / "missing.toml"), lambda: None, "9" * 5000),
    ]


def arrays() -> list[Any]:
    return [
        *(
            torch.zeros(()),
            torch.zeros(0),
            torch.zeros(3),
            torch.zeros(2, 3),
            torch.zeros(1, 2, 3),
            torch.ones(1, 2, 3, 4),
        ),
        *(
            torch.zeros(2, 0),
            torch.zeros(0, 3),
            torch.zeros(2, 3, dtype=torch.int64),
            torch.ones(1, 4, dtype=torch.bool),
        ),
        *(
            torch.full((1, 3), -1),
            torch.full((1, 3), 10**9),
            torch.full((2, 5), math.nan),
            torch.full((2, 5), math.inf),
        ),
        *(torch.zeros(1, 500, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.float64), torch.zeros(1, 2, 4, 8)),
        *(torch.zeros(2, 5, dtype=torch.complex64), torch.zeros(1, 4, dtype=torch.uint8), torch.zeros(1, 2, 4, 6)),
        *(
            np.zeros(3),
            np.zeros((2, 2), dtype=np.int64),
            np.array([[5, 2]]),
            np.array(["x"]),
            np.array(1),
            np.zeros((0, 2)),
        ),
    ]


def _recalled(transformer: model.Transformer) -> dict[str, Any]:
    task = KeyValueRecall(pairs=1, queries=1, keys=2, values=2, longest=0)
    rows = torch.from_numpy(task.draw(np.random.default_rng(1), 2))
    return {"model": transformer, "task": task, "rows": rows}


def world(folder: Path) -> list[Case]:
    """The valid calls, on a tiny run."""
    text = " ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n"
    source = folder / "words.txt"
    source.write_text(text, encoding="utf-8", newline="\n")
    (folder / "file.txt").write_text("x", encoding="utf-8")
    tables: dict[str, Any] = {
        "corpus": {"source": str(source), "tokenizer": "char", "split": "tail"},
        "model": {"context_length": 11, "d_model": 6, "num_heads": 3, "num_layers": 1},
        "training": {"steps": 1, "batch_size": 3, "sample_every": 9, "device": "cpu"},
    }
    config = training.RunConfig.parse({**tables, "seed": 1})
    run_folder = training.train(config, folder / "run")
    run = vitral.load(run_folder.path)
    dataset, tokenizer, transformer = run.dataset(), run.tokenizer, run.model
    splits = dataset.splits
    corpus = data.load_corpus(config.corpus)
    tokens, q = torch.tensor([[1, 2, 3, 4]]), torch.randn(1, 2, 4, 8)
    logits, rows = torch.randn(2, 5), np.array([[0, 20], [20, 50]])
    scored = inspection.window_targets(transformer, splits["test"], 3)
    example = vitral.exercise()
    toml = explanation.exercise_text(explanation.Exercise(), blanks=False)
    base, causal = config.model, attention.Causal()
    of_model: dict[str, Any] = {"model": transformer, "tokenizer": tokenizer}
    study = studies.study_named("no-attention")
    char = data.CharTokenizer("abc")
    bpe = data.BPETokenizer(((116, 104), (256, 101)))

    masks = {"mask": "causal", "scale": "sqrt", "bias": torch.zeros(4, 4), "dropout": 0.0}
    real = torch.ones(1, 4, dtype=torch.bool)
    heads = {"d_model": 8, "num_heads": 2, "num_kv_heads": 1, "mask": causal, "scale": "sqrt", "dropout": 0.1}
    multihead = attention.MultiHeadAttention(**heads)
    where = {"dtype": torch.float32, "device": torch.device("cpu")}
    cache = transformer.new_cache(1)
    k = torch.zeros(1, 3, 2, 2)
    loss = {"logits": torch.randn(1, 4, 5), "targets": tokens, "mask": causal}
    sizes = {"context_length": 5, "batch_size": 2}
    blocks = data.split_text(len(text), "tail")
    pieces = {"text": text, "blocks": blocks, "tokenizer": tokenizer}
    unseen = {"character": "x", "position": 1, "alphabet": "abc"}
    masking = evaluation.Masking(0.5, 0)
    ngrams = evaluation.ngram_baselines(splits["train"], splits["test"], tokenizer.vocab_size, 2)
    counted = {"train": splits["train"], "vocab_size": tokenizer.vocab_size}
    whole = {**of_model, "split": splits["test"]}
    how = {"max_tokens": 3, "sampling": decoding.Sampling(), "seed": 1, "stop": ["x"]}
    options = decoding.GenerateOptions()
    beams = {"max_tokens": 3, "num_beams": 2, "length_penalty": 1.0, "n_best": 1, "stop": ["x"]}
    reader = decoding.Reader(transformer, tokens)
    history = {"logits": logits, "history": torch.zeros(2, 1, dtype=torch.int64)}
    pairs = {"inputs": tokens, "targets": tokens}
    passages = {"model": transformer, "dataset": dataset, "train": 4, "validation": 2, "test": 2}
    part = {"part": splits["test"], "windows": 2, "top": 2, "masking": None}
    events = run.metrics("step")
    by_position = {"model": transformer, "split": splits["test"], "most_tokens": 99, "multiple": 3}
    side = {"positions": 2, "d_model": 2, "num_heads": 1, "mask": "causal", "scale": "none"}
    choice = explanation.Choice(query=1)
    return [
        Case("Run", vitral.Run, {"path": run.path, "which": "best", "device": "cpu", "dtype": "float32"}),
        Case("Run.generate", run.generate, {"prompt": "the", "max_tokens": 3, "seed": 1, "stop": ["x"], "top_k": 2}),
        Case("Run.samples", run.samples, {"prompts": ["the"], "max_tokens": 3, "num_beams": 2, "temperature": 0.5}),
        Case("Run.stream", run.stream, {"prompt": "the", "max_tokens": 3, "min_p": 0.1, "use_cache": True}),
        Case("Run.beam", run.beam, {"prompt": "the", "max_tokens": 3, "num_beams": 2, "n_best": 1, "stop": ["x"]}),
        Case("Run.evaluate", run.evaluate, {}),
        Case("Run.measure", run.measure, {"copying": False}),
        Case("Run.encode", run.encode, {"text": "the"}),
        Case("Run.trace", run.trace, {"text": "the", "names": ["embed"]}),
        Case("Run.explain", run.explain, {"text": "the", "view": explanation.RunView()}),
        Case("Run.inspect", run.inspect, {"text": "the", "windows": 2, "top": 2}),
        Case("Run.metrics", run.metrics, {"event": "step"}),
        *(Case(f"Run.{method.__name__}", method, {}) for method in (run.dataset, run.ngram_baselines, run.parameters)),
        Case("attend", vitral.attend, {"q": q, "k": q, "v": q, **masks}),
        Case("attend_traced", vitral.attend_traced, {"q": q, "k": q, "v": q, **masks}),
        *(Case(f"Run.{method.__name__}", method, {"event": "step"}) for method in (run.records, run.to_pandas)),
        Case("evaluate", vitral.evaluate, {"run": run, "copying": False, "checkpoint": "last", "dtype": "float32"}),
        Case("face.generate", vitral.generate, {"run": run.path, "prompt": "the", "max_tokens": 3, "greedy": True}),
        Case("inspect", vitral.inspect, {"run": run, "text": "the", "windows": 2, "top": 2, "device": "cpu"}),
        Case(
            "explain",
            vitral.explain,
            {"what": run, "text": "the", "layer": 0, "head": [0, 1], "query": 1, "key": 0, "column": 1, "block": True},
        ),
        Case("explain an example", vitral.explain, {"what": "the-cat-sat", "head": "all", "query": 2, "column": 1}),
        # Without a run the machine would be examined, which takes long.
        Case("doctor", lambda run: vitral.doctor("x" if run is None else run), {"run": run.path}),
        Case("continue_", vitral.continue_, {"run": run, "out": folder / "out", "steps": 1, "threads": 1}),
        Case("set_language", vitral.set_language, {"name": "en"}),
        *(
            Case(f"list_{kind}", function, {})
            for kind, function in (
                ("presets", vitral.list_presets),
                ("texts", vitral.list_texts),
                ("studies", vitral.list_studies),
                ("examples", vitral.list_examples),
            )
        ),
        Case("list_runs", vitral.list_runs, {"folder": run.path, "order": "time", "text": "words"}),
        Case("find_runs", runs.find_runs, {"folder": run.path}),
        Case("summarize_run", runs.summarize_run, {"path": run.path, "name": "x"}),
        Case(
            "compare",
            lambda one, two, **options: vitral.compare(one, two, **options),
            {"one": run, "two": run.path, "prompt": "the", "seed": 1, "max_tokens": 3, "losses": True},
        ),
        Case("token_losses", evaluation.token_losses, {"model": transformer, "split": splits["test"]}),
        Case("target_losses", evaluation.target_losses, whole),
        Case("neighbours", evaluation.neighbours, {"loss": 2.0, "orders": {1: 3.0, 2: 2.5}}),
        Case("check", vitral.check, {"example": next(iter(gallery())), "fix": False}),
        Case(
            "configure",
            vitral.configure,
            {"start": "fast", "corpus": None, "minutes": 1.0, "overrides": [{"model": {"d_model": 64}}]},
        ),
        Case("count", vitral.count, {"start": "fast", "vocabulary": 50, "model": {"d_model": 64}}),
        Case("exercise", vitral.exercise, {"positions": 2, "d_model": 2, "seed": 3, "mask": "causal", "scale": "sqrt"}),
        Case("grade", vitral.grade, {"folder": COURSE / "class", "key": COURSE / "class-key.toml", "total": 10.0}),
        Case("load", vitral.load, {"path": run.path, "which": "last", "device": "cpu"}),
        Case("presets", vitral.presets, {}),
        Case("register", vitral.register, {"kind": "norm", "name": "own-identity", "factory": own_norm}),
        Case("resume", vitral.resume, {"run": run.path, "callback": training.silent}),
        Case(
            "study", vitral.study, {"name": "nowhere", "start": None, "budget": "quick", "corpus": None, "seeds": [1]}
        ),
        Case("survey", vitral.survey, {"source": str(source), "tokenizer": "char", "split": "tail", "share": 0.5}),
        Case(
            "train",
            vitral.train,
            # One step: without a start, the default would be two minutes.
            {
                "start": str(run.path / "config.toml"),
                "out": folder / "out",
                "callback": training.silent,
                "training": {"steps": 1, "batch_size": 3},
            },
        ),
        Case("plan_study", plan_study, {"name": "no-attention", "start": "fast", "budget": "quick", "seeds": [1]}),
        Case("study_progress", study_progress, {"folder": folder / "missing"}),
        Case("work_on_jobs", work_on_jobs, {"folder": folder / "missing", "workers": 1, "page": True}),
        Case("free_folder", free_folder, {"name": "x"}),
        Case("examine_run", examine_run, {"path": run.path}),
        *(
            Case(f"{type(one).__name__}.allowed", one.allowed, {"time": 2, "source": 4, "device": torch.device("cpu")})
            for one in (causal, attention.Bidirectional(), attention.Window(size=2), attention.Prefix(length=2))
        ),
        Case("Window", attention.Window, {"size": 3}),
        Case("Prefix", attention.Prefix, {"length": 3}),
        Case("Padding", lambda real: attention.Padding(real).allowed(4, 4), {"real": real}),
        Case("Explicit", lambda tensor: attention.Explicit(tensor).allowed(4, 4), {"tensor": real[0].expand(4, 4)}),
        Case("MultiHeadAttention", attention.MultiHeadAttention, {**heads, "bias": True}),
        Case("MultiHeadAttention()", multihead, {"x": torch.zeros(1, 4, 8), "bias": torch.zeros(4, 4)}),
        Case("MultiHeadAttention.project", multihead.project, {"x": torch.zeros(1, 4, 8)}),
        Case("AttentionConfig", model.AttentionConfig, {"mask": causal, "scale": "sqrt"}),
        Case("ModelConfig", model.ModelConfig, {"d_model": 8, "num_heads": 2, "norm": "pre", "positions": "rotary"}),
        Case("Transformer", model.Transformer, {"config": base, "vocab_size": 5, "seed": 1}),
        Case("Transformer()", transformer, {"tokens": tokens, "cache": None}),
        Case("Transformer.new_cache", transformer.new_cache, {"batch": 1, "length": 5}),
        Case("Transformer.trace", transformer.trace, {"tokens": tokens, "names": ["embed"]}),
        Case("KVCache", model.KVCache, {"config": base, "batch": 1, "capacity": 5, **where}),
        Case("KVCache.reserve", cache.reserve, {"batch": 1, "time": 2}),
        Case("KVCache.select", lambda rows: transformer.new_cache(2).select(rows), {"rows": torch.tensor([0, 1])}),
        Case("KVCache.extend", lambda **given: transformer.new_cache(1).extend(**given), {"layer": 0, "k": k, "v": k}),
        Case("cost", model.cost, {"config": base, "vocab_size": 5, "batch_size": 2}),
        Case("count_parameters", model.count_parameters, {"config": base, "vocab_size": 5}),
        Case("parameter_table", model.parameter_table, {"config": base, "vocab_size": 5}),
        Case("first_target", model.first_target, {"mask": causal}),
        Case("next_token_loss", model.next_token_loss, loss),
        *(
            Case(f"{type(each).__name__}.encode", each.encode, {"text": "abc", "replacement": "a"})
            for each in (char, data.ByteTokenizer(), bpe)
        ),
        *(
            Case(f"{type(each).__name__}.decode", each.decode, {"ids": [1, 2]})
            for each in (char, data.ByteTokenizer(), bpe)
        ),
        *(
            Case(f"{type(each).__name__}.token_bytes", each.token_bytes, {"token": 1})
            for each in (char, data.ByteTokenizer(), bpe)
        ),
        *(Case(f"{type(each).__name__}.label", each.label, {"token": 1}) for each in (char, data.ByteTokenizer(), bpe)),
        Case("CharTokenizer", lambda alphabet: data.CharTokenizer(alphabet).encode("a"), {"alphabet": "abc"}),
        Case("BPETokenizer", lambda merges: data.BPETokenizer(merges).encode("a"), {"merges": ((116, 104),)}),
        Case("BPETokenizer.from_plain", data.BPETokenizer.from_plain, {"plain": bpe.plain()}),
        Case("Split", data.Split, {"tokens": np.arange(50), "segments": rows}),
        Case("Batches", data.Batches, {"split": splits["train"], **sizes, "seed": 1}),
        Case("Batches.batch", data.Batches(splits["train"], **sizes, seed=1).batch, {"step": 1, "micro": 0}),
        Case("windows", data.windows, {"split": splits["test"], **sizes}),
        Case("count_windows", data.count_windows, {"split": splits["test"], "context_length": 5}),
        Case("Blocks", lambda spans: [list(run) for run in data.Blocks(spans).runs()], {"spans": rows}),
        Case(
            "CorpusConfig", data.CorpusConfig, {"source": "sample", "tokenizer": "char", "split": "tail", "share": 0.5}
        ),
        Case("BPEConfig", data.BPEConfig, {"vocab_size": 300}),
        Case(
            "build_tokenizer", data.build_tokenizer, {"config": config.corpus, "text": text, "training_blocks": [text]}
        ),
        Case("cache_folder", data.cache_folder, {"cache": folder}),
        Case("corpus_names", data.corpus_names, {}),
        Case("corpus_report", data.corpus_report, {"dataset": dataset, "text": text, **sizes}),
        Case("encode_splits", data.encode_splits, {**pieces, "scratch": None, "others": ()}),
        Case("load_corpus", data.load_corpus, {"config": config.corpus, "cache": folder / "cache"}),
        Case("prepare", data.prepare, {"config": config.corpus, "tokenizer": tokenizer, "corpus": corpus}),
        Case("split_text", data.split_text, {"num_characters": 50_000, "method": "blocks"}),
        Case("tokenizer_from_plain", data.tokenizer_from_plain, {"plain": char.plain()}),
        Case("without_folders", data.without_folders, {"record": {"path": "a/b.txt", "notes": ["Read from a/b.txt."]}}),
        Case("Dataset.describe", dataset.describe, {}),
        Case("UnseenCharacter", data.UnseenCharacter, unseen),
        Case(
            "LongText",
            data.LongText,
            {
                "path": source,
                "marks": [(0, 0), (5, 5)],
                "newlines": "lf",
                "stamp": (5, 0),
                "sha256": "0" * 64,
                "counts": {"t": 1},
            },
        ),
        Case("Masking", evaluation.Masking, {"rate": 0.5, "token": 0}),
        Case("Masking.count", masking.count, {"time": 5}),
        Case("Masking.hide", masking.hide, {"tokens": tokens, "stream": streams.numpy_stream(1, "x")}),
        Case(
            "ngram_differences",
            evaluation.ngram_differences,
            {"model": transformer, "train": splits["train"], "test": splits["test"], "orders": 2},
        ),
        Case("ngram_baselines", evaluation.ngram_baselines, {**counted, "test": splits["test"], "orders": 2}),
        Case("WittenBell", evaluation.WittenBell, {**counted, "num_orders": 2}),
        Case("WittenBell.nats", evaluation.WittenBell(**counted, num_orders=1).nats, {"split": splits["test"]}),
        Case("NgramBaselines.from_plain", evaluation.NgramBaselines.from_plain, {"plain": ngrams.plain()}),
        Case("bigram_entropy", evaluation.bigram_entropy, {"split": splits["test"], "vocab_size": 50}),
        Case("entropy_by_place", evaluation.entropy_by_place, {"split": splits["test"], "context_length": 3}),
        Case("baseline_name", evaluation.baseline_name, {"order": 2}),
        Case("rank_among_baselines", evaluation.rank_among_baselines, {"loss": 2.0, "baselines": ngrams}),
        Case("evaluate_split", evaluation.evaluate_split, {**whole, "batch_tokens": 64, "masking": masking}),
        Case("longest_copy", evaluation.longest_copy, {"sample": "the cat", "training_text": "a cat"}),
        Case("copied_spans", evaluation.copied_spans, {"sample": "the cat", "training_text": "a cat"}),
        Case("novel_share", evaluation.novel_share, {"sample": "the cat", "training_text": "a cat", "n": 2}),
        Case("training_text", evaluation.training_text, {"dataset": dataset}),
        Case("generate", decoding.generate, {**of_model, "prompts": ["the"], **how, "options": options}),
        Case("stream", decoding.stream, {**of_model, "prompt": "the", **how, "options": options}),
        Case("beam_search", decoding.beam_search, {**of_model, "prompt": "the", **beams}),
        Case("Sampling", decoding.Sampling, {"temperature": 1.0, "top_k": 2, "top_p": 0.5, "min_p": 0.1}),
        Case("GenerateOptions", decoding.GenerateOptions, {"num_samples": 1, "first_sample": 0, "crop": True}),
        Case("Reader", decoding.Reader, {"model": transformer, "tokens": tokens, "use_cache": True}),
        Case("Reader.select", reader.select, {"rows": torch.tensor([0])}),
        Case(
            "Reader.append",
            lambda tokens: decoding.Reader(transformer, torch.tensor([[1]])).append(tokens),
            {"tokens": torch.tensor([1])},
        ),
        Case("apply_temperature", decoding.apply_temperature, {"logits": logits, "temperature": 0.5}),
        Case("choose", decoding.choose, {"probabilities": logits.softmax(-1), "numbers": torch.tensor([0.1, 0.9])}),
        Case("distribution", decoding.distribution, {**history, "sampling": decoding.GREEDY, "forbidden": (1,)}),
        Case("forbid", decoding.forbid, {"logits": logits, "tokens": (1,)}),
        Case("keep_min_p", decoding.keep_min_p, {"logits": logits, "p": 0.5}),
        Case("keep_top_p", decoding.keep_top_p, {"logits": logits, "p": 0.5}),
        Case("keep_top_k", decoding.keep_top_k, {"logits": logits, "k": 2}),
        Case("penalise_repetition", decoding.penalise_repetition, {**history, "penalty": 1.5}),
        Case("uniforms", decoding.uniforms, {"seed": 1, "sample": 2}),
        Case("ablations", inspection.ablations, {"model": transformer, "scored": scored}),
        Case(
            "activation_movements",
            inspection.activation_movements,
            {"before": transformer, "after": transformer, "tokens": tokens},
        ),
        Case(
            "activation_means",
            inspection.activation_means,
            {"model": transformer, "inputs": tokens, "names": ["embed"]},
        ),
        Case("attention_maps", inspection.attention_maps, {**of_model, "text": "the"}),
        Case(
            "attention_saturation",
            inspection.attention_saturation,
            {"model": transformer, **pairs, "batch_numbers": 99},
        ),
        Case("attention_sinks", inspection.attention_sinks, {"model": transformer, "windows": scored}),
        Case("capabilities", inspection.capabilities, {**whole, "contexts": 2, "gaps": 2, "masking": None}),
        Case("classify_passages", inspection.classify_passages, passages),
        Case("cost_by_length", inspection.cost_by_length, {"lengths": [4, 8], "rounds": 1}),
        Case(
            "edited_trace",
            inspection.edited_trace,
            {"model": transformer, "tokens": tokens, "names": ["logits"], "edits": EDITS},
        ),
        Case("editing_tap", inspection.editing_tap, {"model": transformer, "time": 3, "edits": EDITS}),
        Case("effect_of_edits", inspection.effect_of_edits, {**of_model, "text": "the", "edits": EDITS}),
        Case("edits_of", edits_of, {"given": [{"at": "embed", "do": "zero"}]}),
        Case("read_edits", read_edits, {"given": '[{"at": "embed", "do": "zero"}]'}),
        Case("first_over_last", inspection.first_over_last, {"state": {"stream": [2.0, 1.0]}, "kind": "stream"}),
        Case("gradients_by_block", inspection.gradients_by_block, {"model": transformer, **pairs}),
        Case("head_ablations", inspection.head_ablations, {"model": transformer, "scored": scored}),
        Case("head_costs", inspection.head_costs, {"base": base, "vocab_size": 5}),
        Case("head_kinds", inspection.head_kinds, {**of_model, "tokens": tokens}),
        Case("head_patterns", inspection.head_patterns, {**of_model, "tokens": tokens, "most_bytes": 10**6}),
        Case("inspect_text", inspection.inspect_text, {**of_model, "text": "the", **part}),
        Case("logged_gradient_norms", inspection.logged_gradient_norms, {"events": events, "log_every": 1}),
        Case("logit_lens", inspection.logit_lens, {**of_model, "text": "the", "top": 2, "masking": None}),
        Case(
            "loss_by_context",
            inspection.loss_by_context,
            {"model": transformer, "split": splits["test"], "most_targets": 9},
        ),
        Case("recall_by_distance", inspection.recall_by_distance, _recalled(transformer)),
        Case("loss_by_position", inspection.loss_by_position, by_position),
        Case("loss_by_row", inspection.loss_by_row, {"model": transformer, "scored": scored}),
        Case(
            "linear_probes",
            inspection.linear_probes,
            {**of_model, "fresh": transformer, "splits": splits, "sizes": {"train": 3, "validation": 2, "test": 2}},
        ),
        Case("recall_under_masks", inspection.recall_under_masks, {"pairs": 1, "steps": 1, "seeds": [1]}),
        Case("replace_activations", inspection.replace_activations, {"names": ["embed"], "means": None, "heads": [0]}),
        Case("residual_norms", inspection.residual_norms, {**of_model, "text": "the"}),
        Case("retrieval_by_distance", inspection.retrieval_by_distance, {"distances": [1], "steps": 1, "seed": 1}),
        Case("score_statistics", inspection.score_statistics, {"pairs": 9, "rows": 9, "seed": 1}),
        Case(
            "strategy_measures",
            inspection.strategy_measures,
            {**of_model, "dataset": dataset, "prompts": 1, "length": 3, "seed": 1},
        ),
        Case("text_targets", inspection.text_targets, {"model": transformer, "tokens": tokens, "masking": masking}),
        Case("text_tokens", inspection.text_tokens, {**of_model, "text": "the"}),
        Case("untrained", inspection.untrained, {"model": transformer, "seed": 1}),
        Case("window_targets", inspection.window_targets, {"model": transformer, "part": splits["test"], "count": 2}),
        Case(
            "similar_word_scores",
            inspection.similar_word_scores,
            {**of_model, "train": splits["train"], "test": splits["test"], "windows": 2, "most_words": 9},
        ),
        Case("agreeing_weights", inspection.agreeing_weights, {**of_model, "kinds": []}),
        Case("word_measures", inspection.word_measures, {**of_model, "splits": splits, "most_words": 9}),
        Case("explanation.check", explanation.check, {"example": example}),
        Case("corrected", explanation.corrected, {"report": explanation.check(example)}),
        Case("exercise_text", explanation.exercise_text, {"exercise": explanation.Exercise(), "blanks": True}),
        Case("exercise_of", explanation.exercise_of, {"kind": "choice", "seed": 3}),
        Case("key_text", explanation.key_text, {"exercise": explanation.Exercise(kind="choice")}),
        Case("Exercise", explanation.Exercise, {**side, "seed": 3, "decimals": 2}),
        Case("load_example", explanation.load_example, {"path": folder / "file.txt", "find_model": preset_model}),
        Case("parse_example", explanation.parse_example, {"text": toml, "find_model": preset_model, "path": None}),
        Case("phrases", explanation.phrases, {"language": "en"}),
        *(
            Case(writer, getattr(explanation, writer), {"walkthrough": explanation.walk_example(example), "digits": 3})
            for writer in ("to_latex", "to_markdown", "to_page", "to_plain", "to_sections", "to_text")
        ),
        Case("Choice", explanation.Choice, {"heads": (0,), "query": 1, "key": 1, "column": 0}),
        Case(
            "RunView",
            lambda **given: run.explain("the", explanation.RunView(**given)),
            {"layers": (0,), "choice": choice, "block": True, "ending": True, "language": "en"},
        ),
        Case("walk_example", explanation.walk_example, {"example": example, "choice": choice, "language": "pt"}),
        Case("walk_run", explanation.walk_run, {**of_model, "text": "the", "view": explanation.RunView(), "name": "x"}),
        Case("Study.at", study.at, {"budget": "quick"}),
        Case("read_study", studies.read_study, {"path": folder / "file.txt"}),
        Case("study_named", studies.study_named, {"name": "no-attention"}),
        Case("study_names", studies.study_names, {}),
        Case("loss_claims", studies.loss_claims, {"result": None}),
        Case("run_study", studies.run_study, {"study": None, "base": config, "out": folder / "study", "seeds": [1]}),
        Case("load_run", runs.load_run, {"path": run.path, "which": "best"}),
        Case("refuse_existing", runs.refuse_existing, {"path": folder / "missing"}),
        Case("RunFolder.open", runs.RunFolder.open, {"path": run.path}),
        Case("RunConfig", training.RunConfig, {"corpus": config.corpus, "model": base, "training": config.training}),
        Case("TrainingConfig", training.TrainingConfig, {"steps": 1, "batch_size": 2, "device": "cpu"}),
        Case("training.train", training.train, {"config": config, "out": folder / "out", "dataset": dataset}),
        Case("training.resume", training.resume, {"path": run.path, "callback": training.silent}),
        Case("all_of", training.all_of, {}),
        Case("key", streams.key, {"seed": 1, "purpose": "x"}),
        Case("numpy_stream", streams.numpy_stream, {"seed": 1, "purpose": "x"}),
        Case("torch_stream", streams.torch_stream, {"seed": 1, "purpose": "x"}),
        Case(
            "ambient_stream", lambda **given: streams.ambient_stream(**given).__enter__(), {"seed": 1, "purpose": "x"}
        ),
        Case("resolve_device", devices.resolve_device, {"name": "cpu"}),
        Case("activation_names", names.activation_names, {"num_layers": 1, "without": ("embed",)}),
        Case("require_known", names.require_known, {"names": ["embed"], "num_layers": 1}),
    ]


def wrong_call(
    case: Case, pools: tuple[list[Any], list[Any]], chance: random.Random
) -> tuple[list[Any], dict[str, Any]]:
    """The valid call with one or two wrong values, one argument missing, or one too many."""
    args: list[Any] = []
    given, plain, shaped = dict(case.valid), *pools
    kind = chance.uniform(0.16 if getattr(case.function, "__name__", "") == "<lambda>" else 0, 1)
    if kind < 0.06 and given:
        del given[chance.choice(sorted(given))]
    elif kind < 0.12:
        given[chance.choice(["sed", "x", "max_token", "Seed"])] = 1
    elif kind < 0.16 or not given:
        args = [chance.choice(plain) for _ in range(chance.randint(1, 12))]
    else:
        for name in chance.sample(sorted(given), min(len(given), chance.choice([1, 1, 1, 2]))):
            with_shape = hasattr(given[name], "shape")
            given[name] = chance.choice(shaped if chance.random() < (0.6 if with_shape else 0.2) else plain)
    return args, given


def complaint(case: Case, args: list[Any], given: dict[str, Any], counts: dict[str, int]) -> str | None:
    """What this call did wrong; None if it returned, or refused its arguments in one line of ours."""
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    refused = False
    try:
        result = case.function(*args, **given)
        if isinstance(result, Iterator):
            list(islice(result, 20))
    except VitralError as error:
        refused = True
        counts["refused"] += 1
        text = str(error)
        if not text or not text.isprintable() or len(text) >= LONGEST_LINE:
            return f"no printable line: {text[:200]!a}"
        if text.strip() != text or text.endswith(":"):
            return f"an odd line: {text[:200]!a}"
    except Hang:
        return f"took longer than {MOST_SECONDS:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]!a}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    left = os.listdir()
    for path in left:
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
    if refused and left:
        return f"refused, but left {left[:3]}"
    seconds = time.perf_counter() - started
    return f"{seconds:.1f} s" if seconds > MOST_SECONDS else None


def shown(value: Any) -> str:
    with contextlib.suppress(Exception):
        return f"{value.dtype} {tuple(value.shape)}"
    return f"{value!r:.40}" if len(f"{type(value)}") < 60 else type(value).__name__


def main(seed: int, count: int, folder: Path) -> dict[str, Any]:
    """Run so many trials; every case once before any case twice."""

    def ring(*_: Any) -> None:
        raise Hang

    faulthandler.enable()
    signal.signal(signal.SIGALRM, ring)
    torch.manual_seed(0)
    cases, pools = world(folder), (scalars(folder), arrays())
    (folder / "work").mkdir()
    os.chdir(folder / "work")
    failures: list[str] = []
    counts = {"calls": 0, "refused": 0}
    for case in cases:
        if case.name not in UNTRIED:
            before = counts["refused"]
            found = complaint(case, [], case.valid, counts)
            if found or counts["refused"] > before:
                failures.append(f"{case.name}: the valid call: {found or 'refused'}")
            shutil.rmtree(folder / "out", ignore_errors=True)
    counts["refused"] = 0
    chance = random.Random(seed)
    order: list[Case] = []
    for number in range(count):
        order = order or chance.sample(cases, len(cases))
        case = order.pop()
        args, given = wrong_call(case, pools, random.Random(f"{seed} {number}"))
        faulthandler.dump_traceback_later(60, exit=True)
        found = complaint(case, args, given, counts)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder / "out", ignore_errors=True)
        counts["calls"] += 1
        if found:
            written = [*map(shown, args), *(f"{name}={shown(value)}" for name, value in given.items())]
            failures.append(f"trial {number}: {case.name}({', '.join(written)}): {found}")
    return {**counts, "cases": len(cases), "failures": failures}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve())))

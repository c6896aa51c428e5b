"""What a page says of a run's own text: passages, counts, losses, kinds of heads, and what each part is worth.

An imported run has no text, and the text of another run may be elsewhere: then the page says so, and opens as well.
"""

import base64
import zlib
from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from vitral.core.errors import UsageError
from vitral.core.graphs import Plain
from vitral.data import Dataset, Split, corpus_names
from vitral.data.corpora import own_folder
from vitral.evaluation import Masking
from vitral.evaluation.masking import masking_of
from vitral.evaluation.ngrams import Counts, WittenBell, counted_parts, counts_by_order
from vitral.inspection.ablation import ablations
from vitral.inspection.attention import head_kinds
from vitral.inspection.targets import window_targets
from vitral.interop.card import known_licence
from vitral.model import count_parameters
from vitral.page.passages import pairs, passages
from vitral.runs import LoadedRun
from vitral.runs.zoo import recipe, zoo_name

KINDS_ON = 32
"""Windows of the test split on which kinds of heads are told."""
OPERATIONS = 2e11
"""Floating-point operations that a page spends on ablations: a few seconds of one core."""
FEWEST, MOST = 16, 128
"""Windows of the test split on which parts are ablated."""


def is_private(run: LoadedRun) -> bool:
    """Whether a text of the run is a user's own: not bundled, nor known to Vitral by its name."""
    table, own = run.sealed.config.corpus, own_folder()
    names = {name for name in corpus_names() if not (own and (own / f"{name}.txt").exists())}
    texts = {
        *(table.also or ()),
        *([] if table.task is not None or run.sealed.imported is not None else [table.source]),
    }
    return not texts <= names


def of_text(
    run: LoadedRun,
    corpus: str | Path | None = None,
    *,
    ablated: bool | None = None,
    whole: bool = True,
    with_passages: bool = True,
) -> Plain:
    """What `About` says of the run's text (web/src/page/source.ts); keys without a value are left out.

    Args:
        run: the run.
        corpus: where its text is, if it is no longer where it was.
        ablated: whether to measure what each part is worth; if None, where it costs a few seconds.
        whole: False for what takes little time: passages, chosen without counts, and the recorded losses.
        with_passages: False for no passage and no count of the text; the page then opens on a neutral sentence, that of
            labels on an empty field.

    Raises:
        UsageError: `corpus` is not the run's text.
    """
    dataset, missing = _own_text(run, corpus)
    if dataset is None:
        return _opening(run, None, None) | {"text": {"missing": missing}}
    splits, size, counted = dataset.splits, run.tokenizer.vocab_size, None
    is_text = run.model.vocab_size == size and dataset.answers is None  # the page counts no answers apart
    if whole and with_passages and is_text and _masking(run) is None:
        counted = carried_counts(splits["train"], splits["test"], size)
    found = _opening(run, splits["test"] if with_passages else None, counted) | _losses(run)
    if not whole:
        return found
    licence = known_licence(run.sealed.document("corpus"))
    told = dataset.text.model_dump(include={"name", "characters", "sha256"})
    found |= {"text": told | ({"licence": licence} if licence else {})} | ({} if with_passages else {"private": True})
    return found | ({} if _has_answers(run) else _measured(run, dataset, ablated))


def _own_text(run: LoadedRun, corpus: str | Path | None) -> tuple[Dataset | None, str]:
    """The run's text, or why there is none."""
    try:
        return run.sealed.dataset(corpus), ""
    except UsageError:
        if corpus is not None:
            raise
        return None, "imported" if run.sealed.imported is not None else "elsewhere"


def _has_answers(run: LoadedRun) -> bool:
    """Whether a run answers what it reads, with a text or with a label."""
    return run.model.encoder is not None or run.model.config.num_labels is not None


def _masking(run: LoadedRun) -> Masking | None:
    return masking_of(run.sealed.config.training.objective, run.tokenizer)


def _opening(run: LoadedRun, test: Split | None, counted: Any) -> Plain:
    if _has_answers(run):
        found = pairs(run.model, run.tokenizer, test)
        sources, targets = [source for source, _ in found], [target for _, target in found]
        return {"passages": sources} if run.model.encoder is None else {"passages": targets, "sources": sources}
    found = passages(run.model, run.tokenizer, test, None if counted is None else counted[1])
    told = [asdict(each) for each in found]
    if zoo_name(run.sealed.path) and (opens := recipe(run.sealed.path.name).get("opens")):
        told.insert(0, opens)
    return {
        "passages": [each["text"] for each in told],
        "openings": [{key: value for key, value in each.items() if key != "text"} for each in told],
        **({} if counted is None else {"counts": counted[0]}),
    }


def _losses(run: LoadedRun) -> Plain:
    """The test loss of this checkpoint and of the n-gram baselines, as the run has recorded them."""
    found: Plain = {}
    try:
        measured = [event for event in run.folder.metrics("evaluation") if event["step"] == run.step]
        if measured:
            found["loss"] = float(measured[-1]["test_loss"])
        counted = {} if _masking(run) else run.sealed.comparable_ngrams() or {}
    except (UsageError, KeyError, TypeError, ValueError):
        return found
    orders = sorted((int(order), float(loss)) for order, loss in counted.get("orders", {}).items())
    if orders:
        found["baselines"] = [{"order": order, "loss": loss} for order, loss in orders]
        found["gaps"] = [
            {"from": shorter, "to": longer, "loss": worse - better}
            for (shorter, worse), (longer, better) in pairwise(orders)
        ]
    return found


def _measured(run: LoadedRun, dataset: Dataset, ablated: bool | None) -> Plain:
    """Kinds of heads and ablations, on windows of the test split; nothing where it has no whole window."""
    model, test, masking = run.model, dataset.splits["test"], _masking(run)
    found: Plain = {}
    try:
        if model.mask is not None:
            told = head_kinds(model, run.tokenizer, window_targets(model, test, KINDS_ON, masking).inputs)
            found["kinds"] = [[head["kind"] for head in layer] for layer in told["layers"]]
        count = MOST if ablated else _affordable(run)
        if ablated is not False and count:
            found["ablations"] = _effects(run, dataset, count, masking)
    except UsageError:  # the split is shorter than a window
        pass
    return found


def _affordable(run: LoadedRun) -> int:
    """How many windows the ablations of every part may have; 0 where even the fewest cost too much."""
    config = run.model.config
    heads = 0 if run.model.mask is None else config.num_heads
    passes = 1 + config.num_layers * (heads + 3)
    each = 2 * count_parameters(config, run.model.vocab_size) * config.context_length
    count = int(OPERATIONS // (passes * each))
    return 0 if count < FEWEST else min(MOST, count)


def _effects(run: LoadedRun, dataset: Dataset, count: int, masking: Masking | None) -> Plain:
    """What the loss rises by without each part, with 95 % intervals over the windows, beside the n-gram orders."""
    scored = window_targets(run.model, dataset.splits["test"], count, masking)
    found = ablations(run.model, scored, ways=("zero",))
    if found is None:
        return {}
    parts = []
    for block in found["blocks"]:
        stem = f"blocks.{block['layer']}."
        names = {"attention": "attn.out", "recurrence": "recurrence.out", "feed_forward": "mlp.out"}
        there = {key: stem + name for key, name in names.items() if block.get(key)}
        effects = ({"block": [*there.values()]} if len(there) > 1 else {}) | {
            key: [name] for key, name in there.items()
        }
        parts += [{"at": at} | _interval(block[key]["zero"], found["rows"]) for key, at in effects.items() if at]
        for head, effect in enumerate(block["heads"]):
            parts.append({"at": [f"{stem}attn.z"], "head": head} | _interval(effect["zero"], found["rows"]))
    return {"windows": found["rows"], "tokens": found["targets"], "loss": found["loss"], "parts": parts}


def _interval(effect: Plain, rows: int) -> Plain:
    """The increase of the loss with its Student interval over the windows."""
    from scipy import stats

    increase, error = effect["increase"], effect["error"]
    if error is None:
        return {"increase": increase}
    half = float(stats.t.ppf(0.975, rows - 1)) * error
    return {"increase": increase, "low": increase - half, "high": increase + half}


# ---------------------------------------------------------------- n-gram counts
#
# Those of the run's training split, as few bytes as a page can have. Each order is a level of a tree: an n-gram stands
# below its first n - 1 tokens, in increasing order of its last token. Of every order there are three lists of whole
# numbers, in the order of the n-grams: how many n-grams stand below each one of the order before; the last token of
# each, less the one before it below the same; how often each occurs, less 1. A number is written in groups of seven
# bits, the lowest first; all together are compressed by zlib.

MOST_LETTERS = 100_000
"""Of the counts in base64; the page has the highest order within this."""
MOST_ORDER = 6
"""The highest order of a run's baselines."""
_LEVEL = 9
_GROUP = 7


def carried_counts(train: Split, test: Split, vocab_size: int) -> tuple[dict[str, Any], WittenBell] | None:
    """The counts of the highest order that fits into a page (`CountsData` in web/src/page/ngrams.ts).

    Args:
        train: the split that is counted.
        test: the split on which the run's baselines are scored; very long splits are counted in part, as for these.
        vocab_size: number of tokens in the vocabulary.

    Returns:
        `order`; `vocabulary`; `counted`, the number of counted tokens; `grams`, the number of n-grams of each order;
        `data`, the counts in base64; and the model of these counts. None if not even single tokens fit.
    """
    train, _, _ = counted_parts(train, test)
    kept, data = list[Counts](), b""
    packer, written = zlib.compressobj(_LEVEL), b""
    for counts in islice(counts_by_order(train, vocab_size), MOST_ORDER):
        written += packer.compress(_written(counts, vocab_size))
        packed = written + packer.copy().flush()
        if -(-len(packed) // 3) * 4 > MOST_LETTERS:
            break
        kept.append(counts)
        data = packed
    if not kept:
        return None
    found = {
        "order": len(kept),
        "vocabulary": vocab_size,
        "counted": int((train.segments[:, 1] - train.segments[:, 0]).sum()),
        "grams": [len(each.keys) for each in kept],
        "data": base64.b64encode(data).decode("ascii"),
    }
    return found, WittenBell.of_counts(kept, vocab_size)


def _written(counts: Counts, vocab_size: int) -> bytes:
    """The three lists of one order."""
    holders, tokens = np.divmod(counts.keys, vocab_size)
    is_first = np.ones(len(holders), dtype=bool)
    is_first[1:] = holders[1:] != holders[:-1]
    steps = np.where(is_first, tokens, np.diff(tokens, prepend=0))
    return b"".join(map(_groups, (counts.context_kinds, steps, counts.counts - 1)))


def _groups(numbers: Int[np.ndarray, " numbers"]) -> bytes:
    """Whole numbers, each in as many groups of seven bits as it needs; the highest bit says that another follows."""
    numbers = numbers.astype(np.int64)
    sizes = np.ones(len(numbers), dtype=np.int64)
    rest = numbers >> _GROUP
    while rest.any():
        sizes += rest > 0
        rest >>= _GROUP
    begins = np.cumsum(sizes) - sizes
    written = np.zeros(int(sizes.sum()), dtype=np.uint8)
    for place in range(int(sizes.max(initial=0))):
        has = sizes > place
        more = np.where(sizes[has] > place + 1, 1 << _GROUP, 0)
        written[begins[has] + place] = (numbers[has] >> (_GROUP * place)) & 127 | more
    return written.tobytes()

"""What a page of a run holds, as plain data: the run, its graph with the weights, PyTorch's numbers."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from vitral.compare.side_by_side import related
from vitral.core.errors import UsageError, VitralError
from vitral.core.files import sha256
from vitral.core.graphs import Plain
from vitral.core.language import _, language
from vitral.core.process import program
from vitral.data import Tokenizer
from vitral.data.answers import ANSWER, END
from vitral.evaluation.masking import filling_of
from vitral.inspection.lens import contribution_points, stream_points
from vitral.interop.model_graphs import graph_of_model, lens_graph, step_graph
from vitral.model import Transformer
from vitral.model.counts import BYTES_FLOAT32
from vitral.page.film import carried_film, film_about, film_steps
from vitral.page.of_text import is_private, of_text
from vitral.page.tokens import ASKED, carried_tokenizer, served_tokenizer
from vitral.runs import LoadedRun
from vitral.runs.loading import warn_on_stderr
from vitral.runs.zoo import zoo_name

ALIGNED = 4
"""Bytes: where each tensor of a page begins, so that the browser can use it without a copy."""
KINDS = {torch.float32: "float32", torch.int32: "int32", torch.bool: "bool"}
MOST_BYTES = 128_000_000
"""Of a page: more takes minutes to open, or closes the browser."""
ROOM, LABELS = 400_000, 50
"""Bytes of a page beside its weights: of script, graph and counts, and of each token."""


READ = ("passages", "sources")
"""What a page says of its sentences, and of what the encoder reads beside each."""
OPENS, CLOSES = "→", "■"
"""How a page of an encoder-decoder writes the tokens that open and close an answer."""
CHECKED = 64 * 1024
"""Bytes for all named values of a short sentence; at least two tokens are checked whatever they need."""
MOST_TOKENS, LEAST_TOKENS = 12, 2


@dataclass(frozen=True)
class Checks:
    """Sentences with PyTorch's numbers.

    Attributes:
        sentences: [{"text", "ids", "values": [{"name", "shape", "start"}]}]; a start counts bytes of `truth`.
        truth: the numbers as float32.
    """

    sentences: list[Plain]
    truth: bytes


@dataclass(frozen=True)
class PageContent:
    """Everything a page needs.

    Attributes:
        about: of the run, as plain data (`About` in web/src/page/source.ts).
        graphs: the model's graph, that of its lens, and where their constants are in `weights`.
        weights: the constants as raw bytes.
        checks: the numbers with which the page compares its own.
        film: the weights of the run at other steps (`vitral.page.film`); None without a film.
        beside: of another model of the same tokenizer, which reads every sentence beside this one.
        relation: how the two differ (`Relation` in web/src/page/source.ts).
    """

    about: Plain
    graphs: Plain
    weights: bytes
    checks: Checks
    film: Plain | None = None
    beside: "PageContent | None" = None
    relation: Plain | None = None


def page_of(
    runs: Mapping[str, LoadedRun],
    corpora: Sequence[str] = (),
    *,
    ablated: bool | None = None,
    with_passages: bool = False,
) -> PageContent:
    """The content of a page of one run, or of two that read one sentence.

    Args:
        runs: one or two, by what the page calls them.
        corpora: texts of one or both, if they are no longer where they were; of one run, the first is its text.
        ablated: as in `page_content`.
        with_passages: as in `page_content`.

    Raises:
        UsageError: they have different tokenizers; or as `page_content`.
    """
    if len(runs) == 1:
        ((name, run),) = runs.items()
        return page_content(run, name, *corpora[:1], ablated=ablated, with_passages=with_passages)
    (name, run), (other, second) = runs.items()
    if carried_tokenizer(run.tokenizer) != carried_tokenizer(second.tokenizer):
        raise UsageError(
            "bundle: {run} and {other} have different tokenizers, so they cannot read one sentence side by side; write "
            "a page of each",
            run=name,
            other=other,
        )
    for known, each in runs.items():
        if "task" in task_of(each):
            raise UsageError(
                "{name}: it continues no text, so no second model stands beside it; write its page alone", name=known
            )
    texts = [each.sealed.own_among(corpora) for each in runs.values()]
    if texts == [None, None]:
        texts = [*corpora[:1], *corpora[:1]] or texts  # which is refused, with the reason
    how: Plain = {"ablated": ablated, "with_passages": with_passages}
    one, two = (
        page_content(each, known, text, **how, beside=beside)
        for (known, each), text, beside in zip(runs.items(), texts, (second, run), strict=True)
    )
    if one.about["run"] == two.about["run"]:  # both are elsewhere, in folders of one name
        one.about["run"], two.about["run"] = name, other
    command = f"{one.about['program']} bundle {shlex.quote(one.about['run'])} {shlex.quote(two.about['run'])}"
    for each in (one, two):
        each.about["commands"] = {"page": command}
    return replace(one, beside=two, relation={"run": name, "against": other} | related(run, second, corpora))


def page_content(
    run: LoadedRun,
    name: str,
    corpus: str | Path | None = None,
    *,
    ablated: bool | None = None,
    beside: LoadedRun | None = None,
    with_passages: bool = False,
) -> PageContent:
    """The content of a run's page.

    Args:
        run: the run, on the processor in float32.
        name: what the page calls it.
        corpus: where its text is, if it is no longer where it was.
        ablated: whether to measure what each part is worth; if None, where it costs a few seconds.
        beside: the page's other run, with whose weights and film this one shares the room.
        with_passages: whether passages and counts of a private text are carried; those of a named one always are.

    Raises:
        UsageError: the page would be too large, or the model has no graph, or its tokenizer runs in Python only; or as
            `about_run`.
    """
    runs = [run] if beside is None else [run, beside]
    size, steps = sum(map(expected_size, runs)), film_steps(run)
    if size > MOST_BYTES:
        raise UsageError(
            "bundle: the page would have {size:,.0f} MB, more than the {most:,.0f} MB that a browser opens; vitral "
            "open RUN shows the same page with a server",
            size=size / 1e6,
            most=MOST_BYTES / 1e6,
        )
    size += sum(len(film_steps(each)) * (expected_size(each) - ROOM) / 2 for each in runs)  # a frame is half as large
    if steps and size > MOST_BYTES:
        warn_on_stderr(_("film: the page has no room for its {frames} frames", frames=len(steps)))
        steps = []
    about = about_run(run, name, in_commands(run.folder.path, shared=True))
    both = "fills" in about and "task" not in about
    graphs, weights = graphs_of(run.model, both=both)
    about |= of_text(run, corpus, ablated=ablated, with_passages=with_passages or not is_private(run))
    sentences, sources = ([run.tokenizer.encode(text).tolist() for text in about.get(key, ())] for key in READ)
    checks = checks_of(run.model, run.tokenizer, sentences, sources, both=both)
    film = carried_film(run, [] if "task" in about else steps, graphs, checks.sentences[0])
    entry = film_about(run, [frame["step"] for frame in film["frames"]]) if film else {}
    return PageContent(about | entry, graphs, weights, checks, film if entry else None)


def about_run(run: LoadedRun, name: str, said: str | None = None, *, served: bool = False) -> Plain:
    """The run as plain data: everything but numbers of the model, and what its text gives (`of_text`).

    Args:
        run: the run.
        name: what the page calls it.
        said: what commands call it; if None, its name.
        served: whether a server computes the numbers; it opens runs too that no file can hold.

    Raises:
        UsageError: an encoder that neither fills gaps nor names labels.
    """
    model, tokenizer, task = run.model, run.tokenizer, task_of(run)
    config = model.config
    if config.shape == "encoder" and not task:
        raise UsageError(
            "{name}: a page shows a model that continues a text, fills gaps or names labels; this one does none of it",
            name=name,
        )
    names = [each for each in model.activation_names if not each.startswith("encoder.")]
    opens, closes = (tokenizer.declared.get(marker) for marker in (ANSWER, END))
    shorter, source = {}, {}
    if config.encoder is not None:
        shorter = {opens: OPENS, closes: CLOSES}
        own = [each for each in model.activation_names if each not in names]
        source = {"names": own, "context": config.source_length, "layers": config.encoder_layers}
        source = {"source": source | {"opens": opens, "closes": closes}}
    about = {
        "tokens": [shorter.get(token) or tokenizer.label(token) for token in range(tokenizer.vocab_size)],
        "context": config.context_length,
        "layers": config.num_layers,
        "heads": config.num_heads,
        "d_model": config.d_model,
        "vocabulary": model.vocab_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "names": names,
        "stream": [each for each in stream_points(config) if each in names],
        "contributions": [each for each in contribution_points(config) if each in names],
        "model": config.plain(),
        "tokenizer": served_tokenizer(tokenizer) if served else carried_tokenizer(tokenizer),
        "specials": list(tokenizer.specials),
        "language": language(),
        "vitral": metadata.version("vitral"),
        **({"served": True} if served else task),
        **source,
        "name": name,
        "program": "vitral" if os.path.isabs(program()) else program(),  # no page tells where its maker's programs are
        "run": said or name,
        "step": run.step,
    }
    no_file = served and (about["tokenizer"]["kind"] == ASKED or expected_size(run) > MOST_BYTES)
    return about | {"commands": {} if no_file else {"page": f"{about['program']} bundle {shlex.quote(said or name)}"}}


def task_of(run: LoadedRun) -> Plain:
    """What the page says of a run that fills gaps or names labels; nothing of one that only continues a text.

    Returns:
        `task`, "gaps" or "labels", of a model that continues no text; `labels`, their names; `fills`, how gaps are
        read: the `mask` token, the tokens `before` and `after` each text, and how many positions `ahead` of its own a
        hidden token is predicted.
    """
    if run.model.config.num_labels:
        return {"task": "labels", "labels": run.sealed.document("corpus")["labels"]}
    tokenizer = run.tokenizer
    masking = filling_of(run.sealed.config.training.objective, tokenizer)
    if masking is None:
        return {}
    shifted = masking.is_shifted
    around = tokenizer.around if run.sealed.imported else ([], [])
    before, after = ([tokenizer.start], []) if shifted else around
    fills = {"mask": masking.token, "before": before, "after": after, "ahead": int(shifted)}
    return {"fills": fills} | ({} if shifted else {"task": "gaps"})


def in_commands(path: Path, *, shared: bool) -> str:
    """The folder's path from where the user stands; of a folder elsewhere, its name where the page is `shared`."""
    whole = Path(os.path.abspath(path))
    if name := zoo_name(whole):
        return name
    if whole.is_relative_to(Path.cwd()):
        return whole.relative_to(Path.cwd()).as_posix()
    return whole.name if shared else str(whole)


def expected_size(run: LoadedRun) -> int:
    """About how many bytes the page will have: its weights in base64, and what names its tokens."""
    numbers = sum(parameter.numel() for parameter in run.model.parameters())
    return ROOM + numbers * BYTES_FLOAT32 * 4 // 3 + LABELS * run.tokenizer.vocab_size


def graphs_of(model: Transformer, *, both: bool = False) -> tuple[Plain, bytes]:
    """The graphs of a model and of its lens, and their constants as bytes.

    Returns:
        {"model": graph, "lens": graph, "step": graph or None, "both": graph or None, "constants": [{"name", "shape",
        "kind", "start", "sha256"}]}; the lens is what makes logits of a vector of the stream: the final norm, if there
        is one, and the head; the step is one more token with a cache (`vitral.interop.model_graphs`); with `both`, the
        model whose positions see each other, as a mixed one fills gaps.

    Raises:
        UsageError: a part of the model does something that no graph can express.
    """
    try:
        graph, constants = graph_of_model(model)
        step, of_step = step_graph(model) or (None, {})
        gaps, of_gaps = graph_of_model(model, bidirectional=True) if both else (None, {})
    except VitralError as error:
        raise UsageError(
            "bundle: the page cannot compute this model: {reason}; vitral open RUN shows it with a server", reason=error
        ) from None
    lens, of_lens = lens_graph(model)
    stored, weights = _laid_out(constants | of_lens | of_step | of_gaps)
    return {
        "model": computed(graph),
        "lens": computed(lens),
        "step": step and computed(step, "least", "most"),
        "both": gaps and computed(gaps),
        "constants": stored,
    }, weights


def _laid_out(constants: Mapping[str, Tensor]) -> tuple[list[Plain], bytes]:
    stored, weights = list[Plain](), bytearray()
    for name, constant in constants.items():
        value = constant.detach().cpu()
        if value.dtype not in KINDS:
            value = value.to(torch.float32 if value.is_floating_point() else torch.int32)
        piece = value.contiguous().numpy().tobytes()
        place = {"name": name, "shape": list(value.shape), "kind": KINDS[value.dtype], "start": len(weights)}
        stored.append(place | {"sha256": sha256(piece)})
        weights += piece + bytes(-len(piece) % ALIGNED)
    return stored, bytes(weights)


def computed(graph: Plain, *more: str) -> Plain:
    """The part of a graph that is computed."""
    return {key: graph[key] for key in (*more, "inputs", "constants", "nodes", "outputs")}


def checks_of(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]] = (),
    *,
    both: bool = False,
) -> Checks:
    """Every named value of a short sentence, and the last logits of one that fills the context.

    Args:
        model: the model in evaluation mode.
        tokenizer: for the sentences' texts.
        sentences: token ids to take the sentences from; ids of the vocabulary in turn, where they are too few.
        sources: encoder-decoder only: what its encoder reads; the first one is taken.
        both: whether the short sentence is read once more with positions that see each other.
    """
    source = [*sources[0]][: model.config.source_length] if sources else [0]
    given = torch.tensor([source]) if model.encoder is not None else None
    context = model.config.context_length
    all_given = [token for sentence in sentences for token in sentence]
    many = [*all_given, *(place * 7 % model.vocab_size for place in range(context))][:context]
    per_token = 4 * sum(value.numel() for value in model.trace(torch.tensor([many[:1]]), source=given).values())
    short = many[: max(min(LEAST_TOKENS, context), min(MOST_TOKENS, CHECKED // per_token, context))]
    parts = [(short, model.activation_names, 0, False)]
    if len(many) > len(short):
        parts.append((many, ["logits"], 1, False))
    parts += [(short, model.activation_names, 0, True)] * both
    written, truth = list[Plain](), bytearray()
    for ids, names, last, gaps in parts:
        kept = model.trace(torch.tensor([ids]), names, source=given, bidirectional=gaps)
        values: list[Plain] = []
        for name in names:
            value = kept[name][:, -last:]  # of all positions, or of so many at the end
            values.append({"name": name, "shape": list(value.shape), "start": len(truth)})
            truth += value.detach().to(torch.float32).contiguous().numpy().tobytes()
        entry = {"text": tokenizer.decode(ids), "ids": ids, "last": last, "gaps": gaps, "values": values}
        written.append(entry | ({} if given is None else {"source": source}))
    return Checks(written, bytes(truth))

"""The opened runs: PyTorch's numbers for a page, by requests that are checked key by key."""

import copy
import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy
import torch
from pydantic import Field
from torch import Tensor

from vitral.compare import short_names
from vitral.compare.side_by_side import related
from vitral.core.config import Config, nearest
from vitral.core.errors import UsageError, VitralError
from vitral.core.taps import SILENT, InTurn, Tap
from vitral.decoding import Sampling, choose, distribution
from vitral.decoding.reader import Reader, window_start
from vitral.inspection.edits import Edit, editing_tap, edits_of, existing, heads_by_name
from vitral.interop.model_graphs import graph_of_model, lens_graph
from vitral.model import Transformer
from vitral.page.content import about_run, computed, in_commands
from vitral.page.film import film_about, film_steps
from vitral.page.of_text import of_text
from vitral.page.server.named_values import Name, Reducing, read_off
from vitral.page.tokens import encoded
from vitral.runs import LoadedRun, load_run
from vitral.runs.checkpoint import list_checkpoints, load_checkpoint
from vitral.runs.loading import like, load_frame, load_weights

MOST_ANSWER = 1 << 29
"""Bytes of an answer."""
MOST_NUMBERS = 1 << 25
"""Numbers of sentences that stay computed."""
MOST_OTHERS, FEWEST_OTHERS = 1 << 28, 2
"""Bytes of a run's other checkpoints and frames that stay loaded; of large ones, so many stay."""
MOST_DRAWN = 100_000


Found = tuple[bytes, dict[str, str]]
"""Values as safetensors, and what the headers say of the run."""


class Gone(UsageError):
    """What was there is not any more."""

    status = 410


class NotListed(UsageError):
    """A run or a checkpoint that is not listed."""

    status = 404


class TooMuch(UsageError):
    """An answer that is too large."""

    status = 413


Ids = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]


class Asked(Config):
    """A request about a run: its place in the list."""

    run: Annotated[int, Field(ge=0)] = 0


class AboutAsked(Asked):
    """A request for what the page says of a run; `whole`: with what takes seconds, such as counts and ablations."""

    whole: bool = False


class RelationAsked(Asked):
    """A request for how a run differs from another, both by their places in the list."""

    against: Annotated[int, Field(ge=0)]


class EncodeAsked(Asked):
    """A request for the tokens of a text, where only the server has the tokenizer."""

    text: str


class AskedAt(Asked):
    """A request about the weights after a step: of a checkpoint, or of a frame of the film; the run's own if None."""

    step: Annotated[int, Field(ge=0)] | None = None


class NumbersAsked(AskedAt):
    """A request for numbers of the graph's constants: their places by name, counted through all axes; null is all."""

    cells: dict[str, Ids | None]


class Sentence(AskedAt):
    """A request about a sentence.

    Attributes:
        ids: its tokens.
        text: or its text.
        source: encoder-decoder only: the tokens that its encoder reads.
        edits: as `vitral.inspection.edits` has them.
    """

    ids: Ids | None = None
    text: str | None = None
    source: Ids | None = None
    edits: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()


class TraceAsked(Sentence):
    """A request for named values; all if `names` is None."""

    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None


class NextAsked(Sentence):
    """A request for tokens.

    Attributes:
        numbers: one from 0 to below 1 for each token to draw.
        prompt: how many of the sentence's tokens were given at once; all if None.
        sampling: as in `vitral.decoding.Sampling`; null is a filter that is off.
    """

    numbers: Annotated[tuple[Annotated[float, Field(ge=0, lt=1)], ...], Field(strict=False)] = ()
    prompt: Annotated[int, Field(ge=1)] | None = None
    sampling: dict[str, Any] | None = None


class Runs:
    """The runs of a server, each loaded when it is first asked for."""

    def __init__(self, paths: Sequence[Path], checkpoint: str, corpus: str | None = None) -> None:
        """Know the folders; `corpus` is the text of one of them, or of all."""
        self.paths, self.checkpoint, self.corpus = list(paths), checkpoint, corpus
        self.opened: dict[int, Opened] = {}

    def warm(self) -> None:
        """Load the first run, and what the page says of it; what is wrong is said when it is asked for."""
        with suppress(VitralError):
            _ = self._run(0).about

    def about(self, given: Mapping[str, Any]) -> bytes:
        """What the page says of a run, as JSON; a run that was trained on is loaded again."""
        asked = AboutAsked.parse(given, "about")
        known = self.opened.get(asked.run)
        if known is not None and not asked.whole and known.newer() is not None:
            del self.opened[asked.run]
        run = self._run(asked.run)
        return json.dumps(run.whole if asked.whole else run.about, allow_nan=False).encode("ascii")

    def relation(self, given: Mapping[str, Any]) -> bytes:
        """How a run differs from another, as JSON."""
        asked = RelationAsked.parse(given, "relation")
        one, other = self._run(asked.run), self._run(asked.against)
        found = related(one.run, other.run, [] if self.corpus is None else [self.corpus])
        named = {"run": one.name, "against": other.name}
        return json.dumps(named | found, allow_nan=False).encode("ascii")

    def encode(self, given: Mapping[str, Any]) -> bytes:
        """The tokens of a text and its characters that have none, as JSON."""
        asked = EncodeAsked.parse(given, "encode")
        return json.dumps(encoded(self._run(asked.run).run.tokenizer, asked.text)).encode("ascii")

    def anatomy(self, given: Mapping[str, Any]) -> bytes:
        """The graph of a run's model, as JSON."""
        return json.dumps(self._run(Asked.parse(given, "anatomy").run).anatomy.graph, allow_nan=False).encode("ascii")

    def numbers(self, given: Mapping[str, Any]) -> bytes:
        """Numbers of the graph's constants as safetensors."""
        asked = NumbersAsked.parse(given, "numbers")
        run = self._run(asked.run)
        return run.anatomy.numbers(asked.cells, run.model_at(asked.step).state_dict())

    def trace(self, given: Mapping[str, Any]) -> Found:
        """Named values of a sentence."""
        asked = TraceAsked.parse(given, "trace")
        return self._run(asked.run).trace(asked)

    def drawn(self, given: Mapping[str, Any]) -> Iterator[bytes]:
        """Frames of tokens: the id as a whole number of 32 bits, then the logits as float32, little-endian."""
        asked = NextAsked.parse(given, "next")
        return self._run(asked.run).drawn(asked)

    def _run(self, place: int) -> "Opened":
        if not 0 <= place < len(self.paths):
            raise NotListed("run: there are the runs 0 to {last}, not {place}", last=len(self.paths) - 1, place=place)
        path = self.paths[place]
        if not (path / "config.toml").exists():
            self.opened.pop(place, None)
            raise Gone("{path}: the run is not there any more", path=path)
        if place not in self.opened:
            run, name = load_run(path, self.checkpoint), short_names(self.paths)[place]
            self.opened[place] = Opened(path, run, name, self.corpus, alone=len(self.paths) == 1)
        return self.opened[place]


class Opened:
    """A loaded run."""

    def __init__(self, path: Path, run: LoadedRun, name: str, corpus: str | None = None, *, alone: bool = True) -> None:
        """Serve this run, alone or beside others; `corpus` is its text, or that of another."""
        self.path, self.run, self.name, self.corpus, self.alone = path, run, name, corpus, alone
        self.others: OrderedDict[int, Transformer] = OrderedDict()
        self.kept: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self.last_listed = max(self._checkpoints(), default=-1)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the page says of it at once."""
        about = about_run(self.run, self.name, in_commands(self.path, shared=False), served=True)
        about |= film_about(self.run, film_steps(self.run))
        try:
            return about | of_text(self.run, self.corpus, whole=False)
        except UsageError:
            if self.alone:
                raise
            self.corpus = None
            return about | of_text(self.run, whole=False)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """What the page says of it, all; the passages stay."""
        return of_text(self.run, self.corpus) | self.about

    @cached_property
    def anatomy(self) -> "Anatomy":
        """Its model's graph; sentences can be computed meanwhile.

        Raises:
            UsageError: a part of the model does something that no graph can express.
        """
        model = self.run.model
        tensors = (*model.parameters(), *model.buffers())
        # Export changes the modules while it runs, so it has its own; they share the numbers.
        own = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
        try:
            graph, constants = graph_of_model(own)
            lens, of_lens = lens_graph(own)
        except VitralError as error:
            raise UsageError("the arithmetic of this model cannot be read: {reason}", reason=error) from None
        return Anatomy(computed(graph) | {"lens": computed(lens)}, of_lens | constants)

    @cached_property
    def readable(self) -> list[str]:
        """Names that the lens reads."""
        return [*self.about["stream"], *self.about["contributions"]]

    @cached_property
    def widths(self) -> dict[str, int]:
        """Numbers of each named value at one position."""
        one = self._tensor([0])
        source = None if self.run.model.encoder is None else one
        return {name: value.numel() for name, value in self.run.model.trace(one, source=source).items()}

    def newer(self) -> int | None:
        """The step of a checkpoint that was written since the run was loaded; None if there is none."""
        last = max(self._checkpoints(), default=-1)
        return last if last > self.last_listed else None

    @cached_property
    def film(self) -> dict[int, str]:
        """The film's frames: their hashes by their steps."""
        return self.run.sealed.film()

    def _checkpoints(self) -> dict[int, Path]:
        """The folders of the run's checkpoints by their steps."""
        try:
            return {
                int(folder.name.removeprefix("step-")): folder for folder in list_checkpoints(self.run.folder.steps)
            }
        except (VitralError, OSError):
            return {}

    def trace(self, asked: TraceAsked) -> Found:
        """Named values, with edits made on the way."""
        model, ids = self.model_at(asked.step), self._ids(asked)
        chosen = model.activation_names if asked.names is None else asked.names
        heads = heads_by_name(model)
        names = {each: Name.parse(each, len(ids), heads, self.readable) for each in chosen}
        numbers = (each.numbers(len(ids), self.widths[each.own], model.vocab_size) for each in names.values())
        if 4 * sum(numbers) > MOST_ANSWER:
            raise TooMuch(
                "names: these values have more than {most:,} bytes; ask for fewer names, or for one position of each",
                most=MOST_ANSWER,
            )
        kept = self._values(model, asked, ids, {each.kept for each in names.values()})
        values = {key: _stored(value) for key, value in read_off(model, names, kept, ids).items()}
        newer = self.newer()
        headers = {"x-vitral-step": str(self.run.step if asked.step is None else asked.step)}
        headers |= {} if newer is None else {"x-vitral-newer": str(newer)}
        return safetensors.numpy.save(values), headers

    def drawn(self, asked: NextAsked) -> Iterator[bytes]:
        """Tokens drawn one after another, each in a frame with the logits that it was drawn from."""
        model, ids = self.model_at(asked.step), self._ids(asked, cropped=True)
        if len(asked.numbers) > MOST_DRAWN:
            raise TooMuch("numbers: at most {most:,}", most=MOST_DRAWN)
        settings = {key: value for key, value in (asked.sampling or {}).items() if value is not None}
        sampling = Sampling.parse(settings, "next: sampling")
        prompt, context = min(asked.prompt or len(ids), len(ids)), model.config.context_length
        start = max(0, prompt - context)  # what the model sees begins here, as in a `Reader`
        for length in range(prompt + 1, len(ids) + 1):
            start = window_start(start, length, context)
        edits = edits_of(list(asked.edits))
        lengths = {edit.other: len(self._encoded(edit.other)) for edit in edits if edit.other is not None}
        source = self._source(asked)
        reader: Edited | Reader = Reader(model, self._tensor(ids[start:]), source=source)
        if edits:
            reader = Edited(model, ids[start:], self._tap, lambda time: existing(edits, time, lengths), source)
        for number in asked.numbers:
            logits = reader.logits()
            history = torch.tensor([ids])
            likely = distribution(logits, sampling, history=history, forbidden=self.about["specials"])
            token = int(choose(likely, torch.tensor([number], dtype=torch.float64)))
            raw = _stored(logits[0]).astype("<f4").tobytes()
            yield struct.pack("<i", token) + raw
            reader.append(torch.tensor([token]))
            ids = [*ids, token]

    def _ids(self, asked: Sentence, *, cropped: bool = False) -> list[int]:
        """The tokens of a sentence.

        Raises:
            UsageError: both or none of `ids` and `text` are given, a token is unknown, or there are too many or none.
        """
        if (asked.ids is None) == (asked.text is None):
            raise UsageError("give either ids or text")
        ids = list(asked.ids) if asked.ids is not None else self._encoded(asked.text or "")
        model = self.run.model
        most = MOST_DRAWN if cropped else model.config.context_length
        if not 1 <= len(ids) <= most:
            raise UsageError(
                "ids: {tokens} tokens, expected 1 to {context_length}", tokens=len(ids), context_length=most
            )
        unknown = next((each for each in ids if each >= model.vocab_size), None)
        if unknown is not None:
            raise UsageError(
                "ids: token id {token} is not in the vocabulary of {vocab_size} tokens",
                token=str(unknown),
                vocab_size=model.vocab_size,
            )
        return ids

    def _source(self, asked: Sentence) -> Tensor | None:
        """What an encoder reads.

        Raises:
            UsageError: a token is unknown, or there are too many or none.
        """
        config = self.run.model.config
        if asked.source is None or config.source_length is None:
            return None
        if not 1 <= len(asked.source) <= config.source_length or max(asked.source) >= self.run.model.vocab_size:
            raise UsageError("source: expected 1 to {most} tokens of the vocabulary", most=config.source_length)
        return self._tensor(asked.source)

    def _encoded(self, text: str) -> list[int]:
        ids, opens = self.run.tokenizer.encode(text).tolist(), self.about.get("source", {}).get("opens")
        return ids if opens in (None, *ids[:1]) else [opens, *ids]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.run.model.token_embedding.weight.device)

    def _tap(self, model: Transformer, edits: Sequence[Edit], time: int, source: Tensor | None) -> Tap:
        def encode(text: str) -> Tensor:
            return self._tensor(self._encoded(text))

        return editing_tap(model, time, edits, encode, source) if edits else SILENT

    def _values(self, model: Transformer, asked: Sentence, ids: Sequence[int], names: set[str]) -> dict[str, Tensor]:
        """Activations of a sentence; those of the last ones are kept, since a page asks for more as it needs it."""
        key = json.dumps([asked.step, list(ids), asked.source, asked.edits])
        found = self.kept.pop(key, {})
        if not names <= found.keys():
            wanted = names | set(self.readable) | (found.keys() if _size(found) <= MOST_NUMBERS else set())
            known = wanted & set(model.activation_names)
            small = Reducing(wanted - known)
            source = self._source(asked)
            tap = InTurn(self._tap(model, edits_of(list(asked.edits)), len(ids), source), small)
            found = model.trace(self._tensor(ids), sorted(known), source=source, tap=tap) | small.kept
        self.kept[key] = found
        while len(self.kept) > 1 and sum(map(_size, self.kept.values())) > MOST_NUMBERS:
            self.kept.popitem(last=False)
        return found

    def model_at(self, step: int | None) -> Transformer:
        """The model with the weights after a step; None: of the run's checkpoint."""
        if step is None or step == self.run.step:
            return self.run.model
        if step not in self.others:
            self.others[step] = self._kept(step)
            size = sum(weight.nbytes for weight in self.run.model.state_dict().values())
            if len(self.others) > max(FEWEST_OTHERS, MOST_OTHERS // size):
                self.others.popitem(last=False)
        return self.others[step]

    def _kept(self, step: int) -> Transformer:
        """The model of another checkpoint, or else of a frame."""
        kept, own = self._checkpoints(), self.run.model
        if step not in kept:
            if step in self.film:
                return load_frame(self.run.sealed, own, step, self.film)
            steps = ", ".join(map(str, sorted({*kept, *self.film})))
            raise NotListed("step: the run has kept the weights of the steps {steps}", steps=steps)
        checkpoint = load_checkpoint(kept[step], with_optimizer=False)
        if checkpoint.state.get("run", self.run.sealed.identity.run) != self.run.sealed.identity.run:
            raise Gone("{path}: another run is in this folder now; start vitral open again", path=self.path)
        model = like(own)
        load_weights(model, checkpoint.model, str(self.path))
        return model


@dataclass(frozen=True)
class Anatomy:
    """A model's graph, and the numbers that it is computed from.

    Attributes:
        graph: as plain data; `lens` is that of the logit lens.
        constants: the numbers by name.
    """

    graph: dict[str, Any]
    constants: Mapping[str, Tensor]

    def numbers(self, cells: Mapping[str, Ids | None], weights: Mapping[str, Tensor]) -> bytes:
        """Some numbers of some constants as safetensors; of those that are trained, of these weights.

        Raises:
            UsageError: there is no such constant or place, or there are too many.
        """
        for name, places in cells.items():
            if name not in self.constants:
                raise UsageError(
                    "cells: no constant is called {name!r}, {hint}", name=name, hint=nearest(name, self.constants)
                )
            size = self.constants[name].numel()
            if places and max(places) >= size:
                raise UsageError("cells: {name!r} has the places 0 to {last}", name=name, last=size - 1)
        sizes = (self.constants[name].numel() if places is None else len(places) for name, places in cells.items())
        if 4 * sum(sizes) > MOST_ANSWER:
            raise TooMuch("cells: these numbers have more than {most:,} bytes", most=MOST_ANSWER)
        flat = {name: weights.get(name, self.constants[name]).flatten() for name in cells}
        found = {name: flat[name] if places is None else flat[name][list(places)] for name, places in cells.items()}
        return safetensors.numpy.save({name: _stored(value) for name, value in found.items()})


class Edited:
    """As `Reader`, with edits: every token is a whole computation of its window.

    An edit of a position counts from when the window has it.
    """

    def __init__(
        self,
        model: Transformer,
        ids: Sequence[int],
        tap: Callable[..., Any],
        edits: Callable[[int], Sequence[Edit]],
        source: Tensor | None = None,
    ) -> None:
        """Start with these tokens; `edits` gives those of a window of so many; `source` is what an encoder reads."""
        self.model, self.window, self.tap, self.edits, self.source = model, list(ids), tap, edits, source

    def logits(self) -> Tensor:
        """The logits of the next token, [1, vocab]."""
        tokens = torch.tensor([self.window], device=self.model.token_embedding.weight.device)
        tap = self.tap(self.model, self.edits(len(self.window)), len(self.window), self.source)
        return self.model.trace(tokens, ["logits"], source=self.source, tap=tap)["logits"][:, -1]

    def append(self, tokens: Tensor) -> None:
        """Add a token."""
        self.window += tokens.tolist()
        self.window = self.window[window_start(0, len(self.window), self.model.config.context_length) :]


def _stored(value: Tensor) -> np.ndarray:
    return value.detach().to("cpu", torch.float32).contiguous().numpy()


def _size(values: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in values.values())

"""Results of facade functions that no other room has: texts, a run seen from inside, names, and pages."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, in_language, number
from vitral.core.shown import Shown, Tabular
from vitral.data.alphabet import label_text
from vitral.decoding import Sample, Way
from vitral.report.html import page
from vitral.report.markdown import plain_text
from vitral.report.notebook import written_page
from vitral.report.sections import Listing, Paragraph, Preformatted
from vitral.report.tables import Column, Table, decimals

if TYPE_CHECKING:
    from vitral.evaluation import FilledText
    from vitral.report.demonstration import DemonstrationResult

POINTS = 9
"""Of the stream, in the text of the logit lens."""
TITLES = {
    "presets": N_("Presets"),
    "texts": N_("Texts"),
    "studies": N_("Studies"),
    "examples": N_("Worked examples"),
    "names": N_("Activations"),
    "words": N_("Words"),
    "zoo": N_("Zoo: trained models that come with Vitral"),
}
USED_BY = {
    "presets": N_("vitral train NAME"),
    "texts": N_("vitral corpus NAME    vitral train NAME"),
    "studies": N_("vitral study NAME    vitral list studies --times"),
    "examples": N_("vitral explain NAME    vitral check NAME"),
    "names": N_("vitral inspect RUN --edits, and in Python run.cache and run.hooked"),
    "words": N_("vitral list words WORD"),
    "zoo": N_("vitral open NAME    vitral generate NAME    vitral compare NAME NAME"),
}
"""By kind of names, the commands that take one."""


@dataclass(frozen=True, repr=False)
class Samples(Shown, Tabular):
    """Texts that a run wrote.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint.
        samples: in order; of a beam search, the best first.
        seconds: that it took.
        way: whether it ran in C, and why it did not.
        is_answers: whether each prompt is a source, and its text the answer.
    """

    run: str
    step: int
    samples: tuple[Sample, ...]
    seconds: float = 0.0
    way: Way | None = None
    is_answers: bool = False
    _is_only_text = True

    @property
    def text(self) -> str:
        """The first text, after its prompt; the first answer; empty if the text was streamed."""
        return "".join(one.prompt * (not self.is_answers) + one.text for one in self.samples[:1])

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        """One text."""
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        """The texts in order."""
        return iter(self.samples)

    def __str__(self) -> str:
        """The texts, each after its prompt, as the command prints them; of several answers each after its source."""
        if self.is_answers:
            return self.text if len(self) == 1 else "\n".join(f"{one.prompt} → {one.text}" for one in self)
        lines = [line for text, heading in self._headed() for line in (heading and f"--- {heading}", text)]
        return "\n".join(lines[1:] if len(self) == 1 else lines)

    def _headed(self) -> Iterator[tuple[str, str]]:
        """Each text, and its heading if there are several."""
        for index, sample in enumerate(self.samples, start=1):
            heading = "" if len(self) == 1 else _("{n} of {all}", n=index, all=len(self))
            if heading and sample.score is not None:
                heading += _(", log-probability {score}", score=number(sample.score, ".3f"))
            yield sample.prompt + sample.text, heading

    def records(self) -> list[dict[str, Any]]:
        """One row for each text: the same as `vitral generate --format json`."""
        return [asdict(sample) | {"tokens": list(sample.tokens)} for sample in self.samples]

    plain = records

    def page(self) -> str:
        """The texts as an HTML document."""
        title = _("Written by {run} at step {step:,}", run=self.run, step=self.step)
        return page(title, [Preformatted(*headed) for headed in self._headed()])


@dataclass(frozen=True, repr=False)
class FilledGaps(Shown, Tabular):
    """A text whose gaps a run filled.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint.
        found: the text, the ranked fillings of each gap, and the pseudo-perplexity.
    """

    run: str
    step: int
    found: "FilledText"
    _is_only_text = True

    def __str__(self) -> str:
        """The text, the fillings, and how sure the model is of all of it."""
        surely = _(
            "pseudo-perplexity {perplexity:.3f}: each of {n:,} tokens predicted from all others",
            perplexity=self.found.pseudo_perplexity,
            n=self.found.scored,
        )
        fillings = self.table() if self.found.gaps else Paragraph(_("There is no gap in it: write [MASK] for each."))
        return plain_text("", [Preformatted(self.found.text), fillings, Paragraph(surely)])

    def table(self) -> Table:
        """The fillings of each gap, the likeliest first."""
        columns = (
            Column("gap", N_("gap")),
            Column("text", N_("filling"), label_text, is_prose=True),
            Column("probability", N_("probability"), decimals(3)),
        )
        return Table(_("Fillings of each gap, the likeliest first"), columns, self.records())

    def records(self) -> list[dict[str, Any]]:
        """One row for each filling."""
        return [{"gap": gap, **asdict(one)} for gap, ones in enumerate(self.found.gaps, start=1) for one in ones]

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"run": self.run, "step": self.step, **asdict(self.found)}


@dataclass(frozen=True, repr=False)
class Inspection(Shown, Tabular):
    """Attention maps, kinds of heads, ablations, logit lens and norms of a run on one text.

    Attributes:
        found: everything as plain data; `docs/inspect.md` documents it.
    """

    found: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """A part of `found`, such as "lens"."""
        return self.found[name]

    def __str__(self) -> str:
        """A summary, what edits change, what each sublayer and each head is worth, the norms and the logit lens."""
        from vitral.report.inspection import summary, tables

        notes = Listing(tuple(_("note: {text}", text=_(note)) for note in self.found["notes"]))
        return plain_text(summary(self.found), [notes, *tables(self.found), self._lens()])

    def _lens(self) -> Table:
        """The most probable token at each position after some points of the stream, and its probability."""
        from vitral.report.inspection import best_token, mixer, point_label, token_names

        def best(position: dict[str, Any], target: dict[str, Any] | None) -> str:
            share = position["top"][0]["probability"]
            return f"{best_token(position, target)} {'–' if share is None else number(share, '.2f')}"

        lens, part = self.found["lens"], mixer(self.found)
        points = lens["points"][::-1][:: 1 + (len(lens["points"]) - 1) // POINTS][::-1]  # with the last one
        rows = [
            (token, *(best(point["positions"][index], lens["targets"][index]) for point in points))
            for index, token in enumerate(token_names(self.found))
        ]
        title = _("Logit lens: most probable token, its probability, ✓ where it is the true one")
        return Table(title, (_("position"), *(point_label(point["point"], part) for point in points)), tuple(rows))

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return self.found

    def page(self) -> str:
        """The page of `vitral inspect --format html`: one self-contained document."""
        from vitral.report.inspection import inspection_page

        return inspection_page(self.found)

    def records(self) -> list[dict[str, Any]]:
        """One row for each head: its kind, the weight on that kind of key, and the loss increase without the head."""
        kinds, blocks = self.found["kinds"], (self.found["ablation"] or {}).get("blocks")
        made = []
        for layer, heads in enumerate(kinds["layers"]):
            for head, seen in enumerate(heads):
                worth = blocks[layer]["heads"][head] if blocks else {}
                lost = {f"without_{way}": effect["increase"] for way, effect in worth.items()}
                weight = seen["share"].get(seen["kind"])
                made.append(
                    {"block": layer, "head": head, "kind": seen["kind"], "weight": weight, "distance": seen["distance"]}
                    | lost
                )
        return made


@dataclass(frozen=True, repr=False)
class Names(Shown, Tabular):
    """Names of one kind, each with a description.

    Attributes:
        kind: "presets", "texts", "studies", "examples", "zoo", "words" or "names", those of activations.
        descriptions: by name, in English; the table has them in the current language.
        minutes: of studies, by name and budget: the estimated time on this machine; empty if nobody asked.
        peers: of activations, by name: the names in TransformerLens.
    """

    kind: str
    descriptions: Mapping[str, str]
    minutes: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self.descriptions)

    def __len__(self) -> int:
        """The number of names."""
        return len(self.descriptions)

    def __getitem__(self, name: str) -> str:
        """The description of a name, in English.

        Raises:
            UsageError: there is no such name.
        """
        if name not in self.descriptions:
            raise UsageError("{name!r}: {hint}", name=name, hint=nearest(str(name), self.descriptions))
        return self.descriptions[name]

    def __str__(self) -> str:
        """A table; of words, one paragraph for each."""
        if self.kind == "words":
            return plain_text("", [Listing(tuple(f"{_(name)}: {_(said)}" for name, said in self.descriptions.items()))])
        return plain_text("", [self.table(), Paragraph(_(USED_BY[self.kind]))])

    def table(self) -> Table:
        """The names with their descriptions, and the minutes if they were asked for."""
        budgets = list(dict.fromkeys(budget for times in self.minutes.values() for budget in times))
        columns = (
            Column("name", N_("name"), _ if self.kind == "words" else str, is_prose=True),
            Column("description", N_("description"), _, is_prose=True),
            *(Column(budget, budget, _minutes, is_name=True) for budget in budgets),
            *([Column("transformer_lens", "TransformerLens", is_prose=True)] if self.peers else []),
        )
        return Table(_(TITLES[self.kind]), columns, self.records())

    def plain(self) -> list[dict[str, Any]]:
        """The list of this kind in `vitral list --format json`, in English; the minutes if they were asked for."""
        return [
            {"name": name, "description": said}
            | ({"minutes": dict(self.minutes.get(name, {}))} if self.minutes else {})
            | ({"transformer_lens": list(self.peers[name])} if self.peers else {})
            for name, said in self.descriptions.items()
        ]

    def records(self) -> list[dict[str, Any]]:
        """One row for each name."""
        return [
            {"kind": self.kind, "name": name, "description": said, **self.minutes.get(name, {})}
            | ({"transformer_lens": " ".join(self.peers[name])} if self.peers else {})
            for name, said in self.descriptions.items()
        ]

    def page(self) -> str:
        """The table as an HTML document."""
        return page(_(TITLES[self.kind]), [self.table()], lead=_(USED_BY[self.kind]))


def _minutes(minutes: float | None) -> str:
    if minutes is None:
        return "–"
    return _("{n} min", n=max(1, round(minutes))) if minutes < 100 else _("{n} h", n=number(minutes / 60, ".1f"))


@dataclass(frozen=True)
class Bundle:
    """A page that carries a run.

    Attributes:
        path: the HTML file.
        size: its bytes.
        passages: the number of passages of held-out texts in it.
        order: the highest order of n-gram counts of training texts in it; 0 for none.
    """

    path: Path
    size: int
    passages: int = 0
    order: int = 0

    def __str__(self) -> str:
        """Where it is, and what it carries of the text."""
        file = _("page: {path} ({size:.1f} MB); open it in a browser", path=self.path, size=self.size / 1e6)
        content = N_(
            "it carries the model and its vocabulary, and no passage and no count of the text; the model can still "
            "write what it has read: try it before you share it"
        )
        if self.passages:
            content = N_(
                "it carries the model, its vocabulary, {passages} passages of the held-out text, and counts of up to "
                "{order} tokens in a row"
            )
        if self.passages and not self.order:
            content = N_("it carries the model, its vocabulary, and {passages} passages of the held-out text")
        return f"{file}\n{_(content, passages=self.passages, order=self.order)}"

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"path": str(self.path), "bytes": self.size, "passages": self.passages, "order": self.order}


@dataclass(frozen=True, repr=False)
class DemoPage(Shown):
    """The page of the demonstration.

    Attributes:
        html: its file.
        model: the page that carries the model, and computes it in the browser; None if no page can.
        result: what the page shows.
        prompt: a beginning to try.
    """

    html: Path
    model: Path | None
    result: "DemonstrationResult"
    prompt: str

    @property
    def run(self) -> Path:
        """The folder of the run that it shows; `vitral.load` opens it."""
        return self.result.run

    @property
    def sample(self) -> str:
        """A text by that run."""
        return self.result.sample["text"]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Of the study, in sentences."""
        from vitral.studies import loss_claims

        losses = loss_claims(self.result.study)
        return (losses.rank.text, *(claim.text for claim in losses.contrasts))

    def __str__(self) -> str:
        """The text that the model wrote, the verdicts, the pages, and commands to try."""
        pages = [_("report: {path}", path=self.html)]
        pages += [_("page that computes: {path}", path=self.model)] if self.model else []
        run = shlex.quote(str(self.run))
        tried = (
            f"generate {run} --prompt {self.prompt}",
            f'explain {run} --text "{self.result.sentence}"',
            f"why {run}",
        )
        commands = [_("next: {command}", command=f"vitral {command}") for command in tried]
        commands.append(_("with a text of your own: vitral train FILE"))
        return "\n".join([plain_text("", [Preformatted(self.sample)]), "", *self.verdicts, "", *pages, *commands])

    def plain(self) -> dict[str, Any]:
        """As plain data, in English."""
        paths = {"html": str(self.html), "model": None if self.model is None else str(self.model), "run": str(self.run)}
        with in_language("en"):
            return {**paths, "sample": self.sample, "verdicts": list(self.verdicts)}

    def page(self) -> str:
        """The page of the demonstration, as it was written."""
        return written_page(self.html, self)

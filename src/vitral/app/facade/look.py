"""Before a training and around it: `survey`, `count`, `forecast`, `doctor`, and everything that has a name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vitral.app.arguments import (
    Argument,
    Count,
    Encoding,
    Field,
    Glob,
    Option,
    RunLike,
    Specials,
    TextOrTable,
    Tokenizer,
    named,
    of_text,
    opened,
    path_of,
    validated,
)
from vitral.core.errors import UsageError
from vitral.core.language import LANGUAGES, N_, _, in_language, recognised
from vitral.core.language import set_language as choose_language

if TYPE_CHECKING:
    from vitral.app.results import Names
    from vitral.app.run import Run
    from vitral.doctor import Diagnosis
    from vitral.report.model import ModelCount
    from vitral.report.survey import Survey
    from vitral.runs import RunConfig
    from vitral.training.forecast import Forecast

Counted = Annotated[RunLike, Argument("PRESET|CONFIG.toml|TEXT|RUN", offers="presets texts")]
Vocabulary = Annotated[TextOrTable | None, Option("--corpus", parsed=str, offers="texts")]
WORDS = Path(__file__).parents[1] / "words.toml"
"""The glossary, each word in one sentence, in alphabetical order."""


@validated
def survey(
    source: Annotated[RunLike, Argument("PATH|NAME|RUN", offers="texts")] = "sample",
    *,
    tokenizer: Tokenizer = None,
    split: Annotated[Any, Option(parsed=str)] = None,
    specials: Specials = (),
    context: Count | None = None,
    minutes: float | None = None,
    encoding: Encoding = None,
    field: Field = None,
    glob: Glob = (),
    **corpus: Any,
) -> "Survey":
    """Report on a text: size, alphabet, n-gram baselines, problems, and how vitral train would train on it.

    Works, random draws and generated tasks are set in a configuration file, as works, num_works, draw and task of
    [corpus] (docs/configuration.md); train on it, then report on the run.

    Args:
        source: A file, a folder, a known text (vitral list texts), or a run.
        tokenizer: char, byte, bpe, or bpe with its size, as in bpe:1024.  [default: chosen for the text]
        split: Train/validation/test split: blocks, tail, nanogpt, works or one-work (docs/configuration.md).  [default:
            chosen for the text]
        specials: Special token, as in '<|endoftext|>': a string that is one token; repeatable.
        context: Tokens in the model's input.  [default: chosen for the text and the time]
        minutes: Training time that the text is planned for.  [default: 2]
        encoding: Encoding of the text, such as shift_jis or cp1252.  [default: UTF-8]
        field: Of JSON lines, the key of the text, such as text or message.content.  [default: lines as they are]
        glob: Of a folder, only files such as '*.py'; repeatable.  [default: all]
        corpus: Python only: other keys of the `[corpus]` table.

    Raises:
        UsageError: the text cannot be read, or is too short.
    """
    from vitral.data import load_corpus, prepare
    from vitral.evaluation.losses import reading_of_config
    from vitral.report.survey import survey_dataset
    from vitral.training.configuration import pinned, plan_run, presets
    from vitral.training.text_plan import written_plan

    keys = of_text(encoding, field, glob, specials, tokenizer=tokenizer, split=split).get("corpus", {}) | corpus
    if (run := _of_run(source, minutes=minutes, context=context, **keys)) is not None:
        dataset, config = run.dataset(), run.sealed.config
        read, made = dataset.load_text(), written_plan(config, f"the run {run.path}")
    else:
        known, name = presets(), str(source)
        start = name if name in known and known[name].run["corpus"]["source"] == name else None
        plan = plan_run(start, minutes=minutes, overrides=[{"corpus": {**keys, "source": name}}, pinned(None, context)])
        config, made = plan.config, plan.text
        read = plan.corpus or load_corpus(config.corpus)
        dataset = prepare(config.corpus, corpus=read)
    reading, batch_size = reading_of_config(config.model, config.training.objective), config.training.batch_size
    survey = survey_dataset(dataset, read.text, context_length=reading, batch_size=batch_size)
    return replace(survey, plan=tuple(made.plain()), advice=made.lines)


@validated
def count(
    start: Counted = "shakespeare",
    *,
    corpus: Vocabulary = None,
    vocabulary: Count | None = None,
    tokenizer: Tokenizer = None,
    context: Count | None = None,
    minutes: float | None = None,
    encoding: Encoding = None,
    field: Field = None,
    glob: Glob = (),
    **settings: Any,
) -> "ModelCount":
    """Count the parameters, operations and bytes of a model.

    Args:
        start: A preset, a configuration file, a text (the model that vitral train would use for it), or a run.
        corpus: Count with the vocabulary of this text.
        vocabulary: Count with this many tokens.  [default: the nominal vocabulary of a preset, that of the text or run]
        tokenizer: char, byte, bpe, or bpe with its size, as in bpe:1024.  [default: chosen for the text]
        context: Tokens in the model's input.  [default: chosen for the text and the time]
        minutes: Training time, which decides the model for a text.  [default: 2]
        encoding: Encoding of the text, such as shift_jis or cp1252.  [default: UTF-8]
        field: Of JSON lines, the key of the text, such as text or message.content.  [default: lines as they are]
        glob: Of a folder, only files such as '*.py'; repeatable.  [default: all]
        settings: Set a configuration value, as in model.d_model=64; repeatable (all are in docs/configuration.md).

    Raises:
        UsageError: an invalid configuration, or its text cannot be read.
    """
    from vitral.report.model import ModelCount

    layers = [of_text(encoding, field, glob), settings]
    return ModelCount.of(*_configured(start, tokenizer, context, corpus, vocabulary, minutes, layers))


@validated
def forecast(
    start: Counted = "shakespeare",
    *,
    gpus: Count = 1,
    kind: str = "h100",
    measure: bool = False,
    corpus: Vocabulary = None,
    vocabulary: Count | None = None,
    tokenizer: Tokenizer = None,
    **settings: Any,
) -> "Forecast":
    """Forecast a training on several accelerators: memory, tokens per second, hours.

    Args:
        start: A preset, a configuration file, a text (the model that vitral train would use for it), or a run.
        gpus: Number of accelerators.
        kind: Their kind: h100, h200, b200, a100, a100-40, l40s, l4 or rtx-4090.
        measure: Time a few steps on this machine's device, and forecast several of it.
        corpus: Count with the vocabulary of this text.
        vocabulary: Count with this many tokens.  [default: the nominal vocabulary of a preset, that of the text or run]
        tokenizer: char, byte, bpe, or bpe with its size, as in bpe:1024.  [default: chosen for the text]
        settings: Set a configuration value, as in model.d_model=64; repeatable (all are in docs/configuration.md).

    Raises:
        UsageError: an unknown kind, a configuration that `count` refuses, or batches that cannot be shared out evenly.
    """
    from vitral.training.forecast import forecast_of

    name, config, size, _advice = _configured(start, tokenizer, None, corpus, vocabulary, None, [settings])
    return forecast_of(name, config, size, gpus=gpus, kind=kind, measure=measure)


def _of_run(start: "str | Path | Run", **choices: Any) -> "Run | None":
    """The run that is asked about, of which nothing can be chosen; None if it is no run."""
    from vitral.runs import is_run
    from vitral.training.configuration import refuse_choices

    if isinstance(start, str | Path) and not is_run(path_of(start)):
        return None
    refuse_choices(str(path_of(start)), **choices)
    return opened(start)


def _configured(
    start: "str | Path | Run",
    tokenizer: str | None,
    context: int | None,
    corpus: Any,
    vocabulary: int | None,
    minutes: float | None,
    settings: Sequence[dict[str, Any]],
) -> tuple[str, "RunConfig", int, tuple[str, ...]]:
    """Name, configuration and vocabulary of what `count` and `forecast` are asked about, and lines of advice."""
    from vitral.core.config import merge
    from vitral.training.configuration import pinned, plan_run, presets
    from vitral.training.plans import FIT

    chosen = {"corpus": corpus, "vocabulary": vocabulary, "minutes": minutes}
    name = str(start if isinstance(start, str | Path) else start.path)
    if (run := _of_run(start, **chosen, tokenizer=tokenizer, context=context, **merge(*settings))) is not None:
        return name, run.sealed.config, run.tokenizer.vocab_size, ()
    known = presets()
    plan = plan_run(name, corpus=named(corpus), minutes=minutes, overrides=[*settings, pinned(tokenizer, context)])
    if plan.corpus is not None or plan.config.training.plan == FIT:
        dataset = plan.dataset()
        fitted = plan.fitted(dataset)
        advice = plan.text.lines[: -1 if fitted.decisions else None]  # the last is dropout, which is chosen again
        return name, fitted.config, vocabulary or dataset.tokenizer.vocab_size, advice + fitted.decisions
    if vocabulary is None:
        nominal = corpus is None and tokenizer is None and name in known
        vocabulary = known[name].vocabulary if nominal else plan.dataset().tokenizer.vocab_size
    return name, plan.config, vocabulary, ()


@validated
def doctor(run: Annotated[RunLike | None, Argument("RUN|STUDY", Path)] = None, *, repair: bool = False) -> "Diagnosis":
    """Check this machine, or a run or a study for damage.

    Exit code 1 if something is wrong.

    Args:
        run: Folder of a run or a study.  [default: check this machine]
        repair: Restore the run's configuration and cut its log; damaged files are kept.

    Raises:
        UsageError: none of them.
    """
    from vitral.doctor import examine_machine
    from vitral.doctor.folders import examine_run, examine_study, is_study, repair_run

    if run is None:
        if repair:
            raise UsageError("--repair: needs a RUN")
        return examine_machine()
    folder = path_of(run, changes=repair)
    repaired = tuple(repair_run(folder)) if repair else ()
    return replace(examine_study(folder) if is_study(folder) else examine_run(folder), repaired=repaired)


def _names(kind: str, *descriptions: Any, **more: Any) -> "Names":
    from vitral.app.results import Names

    return Names(kind, *descriptions, **more)


@validated
def list_presets() -> "Names":
    """The presets with their descriptions; `vitral.presets` has their configurations."""
    from vitral.training.configuration import presets

    return _names("presets", {name: preset.description for name, preset in presets().items()})


@validated
def list_texts() -> "Names":
    """The texts that have a name."""
    from vitral.data import corpus_names

    return _names("texts", corpus_names())


@validated
def list_studies(*, times: bool = False) -> "Names":
    """The studies with their questions.

    Args:
        times: estimate the minutes of each on this machine, from a few training steps timed now.
    """
    from vitral.studies import study_names
    from vitral.studies.plan import study_minutes

    with in_language("en"):
        return _names("studies", study_names(), study_minutes() if times else {})


@validated
def list_examples() -> "Names":
    """The worked examples of the gallery with their titles."""
    from vitral.explanation.examples.by_name import find_example, gallery

    return _names("examples", {name: find_example(name).title for name in gallery()})


@validated
def list_names() -> "Names":
    """The names of the activations of a model, of block N, each with TransformerLens' names for it."""
    from vitral.core.names import AFTER_BLOCKS, BEFORE_BLOCKS, BLOCK_STEPS, TRANSFORMER_LENS

    inside = {"cross.*" if step.startswith("cross.") else step: said for step, said in BLOCK_STEPS.items()}
    inside["cross.*"] = N_("encoder-decoder only: the steps of attention, of cross-attention")
    said = {**BEFORE_BLOCKS, **{f"blocks.N.{step}": meaning for step, meaning in inside.items()}, **AFTER_BLOCKS}
    peers = {name: [theirs for theirs, ours in TRANSFORMER_LENS.items() if name in ours] for name in [*said, *inside]}
    return _names("names", said, peers={name: peers[name.removeprefix("blocks.N.")] for name in said})


@validated
def list_words(word: str | None = None) -> "Names":
    """The words of screens and pages, each in one sentence.

    Args:
        word: Only this one, in the current language or in English.

    Raises:
        UsageError: no word is like it.
    """
    from vitral.core.config import nearest, read_toml

    words = read_toml(WORDS)
    if word is not None:
        alike = [name for name in words if word.casefold() in (name.casefold(), _(name).casefold())]
        alike = alike or [name for name in words if word.casefold() in f"{name} {_(name)}".casefold()]
        if not alike:
            raise UsageError("{name!r}: {hint}", name=word, hint=nearest(word, map(_, words)))
        return _names("words", {name: words[name] for name in alike})
    return _names("words", dict(sorted(words.items(), key=lambda pair: _(pair[0]).casefold())))


@validated
def list_zoo() -> "Names":
    """The runs of the zoo: what each is, its size, and how good it is."""
    from vitral.runs.zoo import PREFIX, numbers, recipe

    said = {
        "loss": N_("test loss {loss:.2f} nats per token; the best table of n-grams has {table:.2f}, lower is better"),
        "exact": N_("{exact:.1%} of the answers to new questions are exact"),
        "right": N_("{right:.1%} of the answers to new questions are right"),
        "head": N_("the best induction head gives {prefix:.0%} of its attention to the token to copy"),
    }
    runs = {}
    for name, known in numbers().items():
        measure = next(key for key in said if key in known)
        how = said[measure].format(**known)
        facts = {"about": N_(recipe(name)["description"]), "size": known["bytes"] / 1e6, "how": how}
        runs[f"{PREFIX}{name}"] = N_("{about} {size:.1f} MB; {how}.").format(**facts)
    return _names("zoo", runs)


@validated
def set_language(name: str | None = None) -> str:
    """Choose the language of texts, pages and messages in this process.

    Args:
        name: "en", "pt", the name of a locale, or None for that of the environment.

    Returns:
        The code of the language; that of English, with a note, if there is no catalogue of the named one.
    """
    if name is not None and recognised(name) is None:
        from vitral.runs.loading import warn_on_stderr

        warn_on_stderr(
            _("language {name!r}: not one of {known}; English is used", name=name, known=", ".join(LANGUAGES))
        )
    return choose_language(name)

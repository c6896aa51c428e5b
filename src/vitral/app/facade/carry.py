"""Runs carried elsewhere: `bundle`, `open_` and `serve` on this machine, `import_` and `export` for other libraries."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from vitral.app.arguments import (
    Argument,
    Callback,
    Option,
    Paths,
    RunLike,
    Text,
    Which,
    free_folder,
    path_of,
    validated,
)
from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.app.results import Bundle
    from vitral.app.run import Run
    from vitral.interop import Export


@validated
def bundle(
    runs: Annotated[RunLike | Sequence[RunLike], Argument("RUN...", list[Path])],
    out: Annotated[Paths | None, Option("--out or -o")] = None,
    *,
    checkpoint: Which = None,
    corpus: Text | None = None,
    ablations: Annotated[bool | None, Option("--ablations/--no-ablations")] = None,
    tour: Annotated[Paths | None, Option(metavar="FILE")] = None,
    with_passages: bool = False,
) -> "Bundle":
    """Write a run, or two side by side, as one page that computes in any browser.

    The page carries the model: type a sentence and see every number, without a server or a network. When it is opened,
    it compares its numbers with those of PyTorch. Two runs of one tokenizer read the same sentence, token by token.

    Of a text of your own no passage and no count is carried, unless you say so; the weights can remember some of it.

    Args:
        runs: Folder of a run, or of two.
        out: HTML file to create.  [default: RUN.html, in this folder]
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        ablations: Measure on the test split what each part is worth.  [default: where it takes a few seconds]
        tour: TOML file with a tour of your own; see docs/page.md.
        with_passages: Also carry passages of the held-out text and n-gram counts of a text of your own.

    Raises:
        UsageError: not a run, more than two, two of different tokenizers, the file exists already, the page would be
            too large, the model has no graph, its tokenizer runs in Python only, or the tour is wrong.
        StorageError: writing to disk failed.
    """
    from vitral.app.results import Bundle
    from vitral.compare import short_names
    from vitral.core.files import create_durably, require_free, storage
    from vitral.page import page_document, page_of
    from vitral.page.tour import stops_of
    from vitral.runs import load_run

    listed = _listed(runs)
    folders = [path_of(run) for run in listed]
    resolved = [folder.resolve() for folder in folders]
    if not 0 < len({*resolved}) == len(resolved) < 3:
        raise UsageError("bundle: a page shows one run, or two different ones; vitral open RUN... shows many in a list")
    path = Path(f"{resolved[0].name}.html") if out is None else Path(out)
    require_free(path)
    with storage(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    stops = None if tour is None else stops_of(Path(tour))
    loaded, corpora = {}, [corpus]
    for name, folder, run in zip(short_names(resolved), folders, listed, strict=True):
        loaded[name] = load_run(folder, _which(run, checkpoint))
        corpora.append(None if isinstance(run, str | Path) else run.corpus)
    texts = [str(one) for one in corpora if one]
    made = page_of(loaded, texts, ablated=ablations, with_passages=with_passages)
    content = page_document(made, stops).encode()
    create_durably(path, content)
    facts = [one.about for one in (made, made.beside) if one is not None]
    shown = [one["passages"] for one in facts if "name" in one["text"] and not one.get("private")]
    order = max(one.get("counts", {}).get("order", 0) for one in facts)
    return Bundle(path, len(content), sum(map(len, shown)), order)


@validated
def open_(
    runs: Annotated[RunLike | Sequence[RunLike], Argument("RUN...", list[Path])],
    *,
    checkpoint: Which = None,
    corpus: Text | None = None,
    tour: Annotated[Paths | None, Option(metavar="FILE")] = None,
    port: Annotated[int, Interval(ge=0, le=65535)] = 0,
    browser: Annotated[bool, Option("--no-browser", default=False, read=lambda option, given: not given)] = True,
    announce: Callback | None = None,
) -> None:
    """Open runs as a page (extra: serve): type a sentence, see everything.

    A server on this machine computes the numbers; no other machine and no other page can ask it. The address that it
    prints has a secret behind the #; keep it to yourself. Ctrl+C ends the server.

    Args:
        runs: Folders of runs.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        tour: TOML file with a tour of your own; see docs/page.md.
        port: Port of this machine.  [default: a free one]
        browser: Print the address, and open no browser.
        announce: Python only: called with the address, which is printed otherwise.

    Raises:
        UsageError: not a run, the extra `serve` is not installed, the tour is wrong, or the port is taken.
    """
    from vitral.page.server.serving import serve
    from vitral.page.tour import stops_of

    listed = _listed(runs)
    if not listed:
        raise UsageError("open_: at least one run is needed")
    serve(
        [path_of(run) for run in listed],
        checkpoint=checkpoint or "best",
        corpus=None if corpus is None else str(corpus),
        tour=None if tour is None else stops_of(Path(tour)),
        port=port,
        browser=browser,
        announce=announce or print,
    )


@validated
def serve(
    runs: Annotated[RunLike | Sequence[RunLike], Argument("RUN...", list[Path])],
    *,
    checkpoint: Which = None,
    port: Annotated[int, Interval(ge=0, le=65535)] = 0,
    announce: Callable[[str, str], Any] | None = None,
) -> None:
    """Serve runs to OpenAI's clients and to lm-evaluation-harness: completions, chats, log-probabilities.

    A server on this machine answers /v1/models, /v1/completions and /v1/chat/completions; no other machine can ask it,
    and nobody without the API key that it prints. Ctrl+C ends the server.

    Args:
        runs: Folders of runs.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        port: Port of this machine.  [default: a free one]
        announce: Python only: called with the address and the API key, which are printed otherwise.

    Raises:
        UsageError: not a run, one that continues no text, the extra `serve` is not installed, or the port is taken.
    """
    from vitral.compare import short_names
    from vitral.page.server.serving import require_server, serve_completions
    from vitral.runs import load_run

    require_server()
    folders = [path_of(run) for run in _listed(runs)]
    if not folders:
        raise UsageError("serve: at least one run is needed")
    names = short_names([folder.resolve() for folder in folders])
    read = zip(names, _listed(runs), folders, strict=True)
    models = {name: load_run(folder, _which(run, checkpoint)) for name, run, folder in read}
    serve_completions(models, port=port, announce=announce or print)


def _which(run: RunLike, checkpoint: Which) -> Any:
    """The checkpoint that is asked for, else the one that is loaded, else the best."""
    return checkpoint or (None if isinstance(run, str | Path) else run.which) or "best"


def _listed(runs: RunLike | Sequence[RunLike]) -> Sequence[RunLike]:
    return [runs] if isinstance(runs, str | Path) or not isinstance(runs, Sequence) else runs


@validated
def import_(
    source: Annotated[Paths, Argument("FOLDER|FILE|hf:NAME")],
    out: Annotated[Paths | None, Option()] = None,
    *,
    tokenizer: Annotated[Paths | None, Option(metavar="FILE|FOLDER|hf:NAME", parsed=str)] = None,
    names: Annotated[Paths | None, Option("--map", metavar="FILE")] = None,
) -> "Run":
    """Make a run of a model of GPT-2, Llama, Mistral, Qwen2, GPT-NeoX, OPT, GPT-Neo, MPT, nanoGPT or torch.nn.

    Only tensors and plain data are read, and no code that comes with a model is run. Extra: interop.

    Args:
        source: A folder of transformers with config.json and safetensors, or a model of the Hugging Face hub, as in
            hf:distilbert/distilgpt2 or hf:distilbert/distilgpt2@main; ckpt.pt of nanoGPT; or model.safetensors of any
            GPT with --map.
        out: Folder to create.  [default: a new one under runs/]
        tokenizer: tokenizer.json or a folder with one, a .tiktoken or .toml file, or the training text of a model of
            characters.  [default: that of the model]
        names: TOML file that maps the names of the tensors; see docs/interop.md.

    Raises:
        UsageError: the model cannot be read, or cannot be expressed in Vitral; nothing is left behind.
        StorageError: writing to disk failed.
    """
    from vitral.app.run import Run
    from vitral.interop import import_model
    from vitral.interop.foreign import is_hub

    name = str(source)  # a revision of the hub is no part of the folder's name
    folder = free_folder(name.partition("@")[0].replace(":", "/") if is_hub(name) else name)
    path = folder if out is None else Path(out)
    made = import_model(source, path, tokenizer=tokenizer, names=None if names is None else Path(names))
    return Run(made.path)


@validated
def export(
    run: RunLike,
    out: Annotated[Paths, Option()],
    *,
    to: Annotated[str, Option(metavar="NAME")] = "hf",
    proof: bool = True,
    checkpoint: Which = None,
) -> "Export":
    """Write a run as a folder that another library opens, with tokenizer, model card and proof.

    The logits are the same up to rounding; a model that no form can express is refused with the reason. Libraries that
    prove it are in the extra: interop. The folder has the weights, the vocabulary, and the name and losses of the text.

    Args:
        run: Folder of a run.
        out: Folder to create.
        to: A form of transformers (gpt2, llama, mistral, qwen2, gpt-neox, opt, gpt-neo, mpt, bert; hf takes the first
            that can express the model), torch-nn, onnx, gguf for llama.cpp and Ollama, or graph, every operation as
            JSON, for any model.
        proof: Open the export in the other library and compare logits, text and tokens.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.

    Raises:
        UsageError: no form can express the model, the proof fails or a library is missing; nothing is left behind.
        StorageError: writing to disk failed.
    """
    import shlex

    from vitral.interop import export_run
    from vitral.runs import load_run
    from vitral.runs.zoo import zoo_name

    folder = path_of(run)
    words = ["vitral", "export", zoo_name(folder) or folder.name, "--to", to, "--out", Path(out).name]
    words += ["--checkpoint", "last"] if checkpoint == "last" else []
    words += [] if proof else ["--no-proof"]
    return export_run(
        load_run(folder, _which(run, checkpoint)), Path(out), to=to, proof=proof, command=shlex.join(words)
    )

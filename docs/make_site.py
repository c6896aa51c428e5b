"""The hook of mkdocs: what the site shows besides the files of docs (make site).

Pages of the program are made from it: commands from their signatures (after what docs/commands.md says), Python's names
from `vitral.__all__`, names of activations, words. Files outside docs become pages, notebooks are executed, formulas
become MathML. VITRAL_SITE=pt makes the Portuguese site; what is not translated is a link to the English page.
"""

import html
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LANGUAGE = os.environ.get("VITRAL_SITE", "en")
EXECUTES = os.environ.get("VITRAL_NOTEBOOKS", "1") == "1"
OUTSIDE = {
    "README.md": "index.md",
    "docs/pt/README.md": "pt/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "internals/benchmarks.md",
    "src/vitral/data/texts/README.md": "texts.md",
    "docs/one_file.py": "one_file.md",
}
"""Files of the repository that are no pages of docs, and the page that each becomes."""
MADE_OF = {"src/vitral/core/names.py": "reference/activations.md", "src/vitral/app/words.toml": "glossary.md"}
"""Files of the repository from which a page is made: a link to one leads to the page."""
ENGLISH = "english:"
"""Begins the address of an English page on a Portuguese one, until the page is written."""
COLOURS = ("#9f268d", "#d76f04", "#3d5bc6", "#6239a0", "#940015", "#8fe3ba")
LETTERS = (
    f'<b aria-hidden="true" style="background:{colour}"{" class=dark" * (letter == "l")}>{letter}</b>'
    for letter, colour in zip("Vitral", COLOURS, strict=True)
)
PANES = f'<h1 class="panes" aria-label="Vitral">{"".join(LETTERS)}</h1>'
"""The first heading, each letter in the colour that it has on the page of a run."""
LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
SWITCH = re.compile(
    r"^(?:\*\*English\*\* · .*|\[English\]\(.*\*\*Português\*\*|\[(?:Em português|In English)\]\(\S*\)\.?)\n", re.M
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The structure in this language."""
    from vitral import set_language

    set_language(LANGUAGE)
    words = config.extra["pt"] if LANGUAGE == "pt" else {}
    config.theme["language"] = LANGUAGE
    config.site_description = words.get(config.site_description, config.site_description)
    for each in config.theme["palette"]:
        each["toggle"]["name"] = words.get(each["toggle"]["name"], each["toggle"]["name"])
    there = {*_sources(), *_made()}
    config.nav = [*_entries(config.nav or [], words, there, set())]
    return config


def _sources() -> Iterator[str]:
    """The pages of docs, by their places in the site."""
    for path in (ROOT / "docs").glob("**/*.md"):
        name = path.relative_to(ROOT / "docs").as_posix()
        if name != "pt/README.md":
            yield name


def _entries(nav: list[Any], words: dict[str, str], there: set[str], listed: set[str]) -> Iterator[Any]:
    """The navigation: patterns expanded, titles translated, English pages linked from the Portuguese site."""
    for entry in nav:
        if isinstance(entry, dict):
            ((title, inner),) = entry.items()
            if found := [*_entries(inner, words, there, listed)]:
                yield {words.get(title, title): found}
            continue
        for name in sorted(one for one in there if fnmatch(one, entry)) if "*" in entry else [entry]:
            if name in listed:
                continue
            listed.add(name)
            if LANGUAGE == "en" or f"pt/{name}" in there:
                yield {words["Home"]: name} if words and name == "index.md" else name
            elif "*" not in entry:
                yield {f"{_title(name)} (em inglês)": ENGLISH + name.replace(".md", ".html").replace("README", "index")}


def _title(name: str) -> str:
    """The first heading of an English page."""
    made = _made()
    text = made[name]() if name in made else (ROOT / "docs" / name).read_text(encoding="utf-8")
    return re.sub(r"[`*]", "", re.search(r"^# (.*)$", text, re.M)[1])  # pyright: ignore[reportOptionalSubscript]


# ------------------------------------------------------------------------------------------------------------ the files


def _made() -> dict[str, Any]:
    """The pages that are made, each with the function that makes its text."""
    outside = {to: (lambda path=path: _repository(path)) for path, to in OUTSIDE.items()}
    notebooks = {
        f"notebooks/{path.stem}.md": (lambda path=path: _notebook(path))
        for path in (ROOT / "docs/notebooks").glob("*.ipynb")
    }
    pages = {
        "reference/activations.md": _activations,
        "glossary.md": _glossary,
    }
    return (
        outside | notebooks | {"reference/python.md": _python} | pages | {f"pt/{name}": pages[name] for name in pages}
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of this language, with the pages that are made."""
    for name, make in _made().items():
        if (LANGUAGE == "pt") == name.startswith("pt/"):
            files.append(File.generated(config, name, content=make()))
    own, shared = "pt/" if LANGUAGE == "pt" else "", ("images/", "site/", "assets/")
    for file in [*files]:
        is_foreign = file.src_uri.startswith("pt/") != bool(own)
        if file.src_uri.endswith((".ipynb", "pt/README.md")) or (
            is_foreign and not (own and file.src_uri.startswith(shared))
        ):
            files.remove(file)
    if file := files.get_file_from_path("demo/index.html"):  # its links lead to pages of GitHub
        text = file.content_string.replace("../../README.md", "../index.html")
        files.remove(file)
        files.append(File.generated(config, file.src_uri, content=text.replace("/README.md", "/index.html")))
    for file in [*files] if own else []:
        if file.src_uri.startswith(own):
            files.remove(file)
            text = file.content_string if file.is_documentation_page() else file.content_bytes
            files.append(File.generated(config, file.src_uri.removeprefix(own), content=text))
    return files


def _repository(path: str) -> str:
    """A file of the repository as a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return text if path.endswith(".md") else f"# One file\n\n```python\n{text}```\n"


def _origin(name: str) -> str:
    """The file of the repository from which a page of the site was made."""
    name = name if LANGUAGE == "en" else f"pt/{name}"
    return {page: path for path, page in OUTSIDE.items()}.get(name, f"docs/{name}")


def _target(path: str) -> str | None:
    """The place in the site of a file of the repository; None if it is not there."""
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    name = (OUTSIDE | MADE_OF).get(path, path.removeprefix("docs/")).replace(".ipynb", ".md")
    if name in _made() or (path.startswith("docs/") and not path.endswith(".toml") and (ROOT / path).exists()):
        return name
    return None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """GitHub's Markdown as Python's, and the links of the repository as links of the site."""
    markdown += _commands() if page.file.src_uri == "commands.md" else ""
    here, folder = posixpath.dirname(page.file.src_uri), posixpath.dirname(_origin(page.file.src_uri))

    def linked(found: re.Match[str]) -> str:
        link = found[2]
        if not link or re.match(r"\w+:", link):
            return found[0]
        name = _target(posixpath.normpath(posixpath.join(folder, link)))
        if name is None:
            return f"]({ENGLISH}none)"
        is_translated = name.startswith("pt/")
        if LANGUAGE == "en" and is_translated:
            return f"]({ENGLISH}pt/{name.removeprefix('pt/')}".replace(".md", ".html") + found[3]
        if LANGUAGE == "pt" and not is_translated and not name.startswith(("images/", "site/")):
            return f"]({ENGLISH}{name.replace('README.md', 'index.md').replace('.md', '.html')}" + found[3]
        return f"]({posixpath.relpath(name.removeprefix('pt/'), here or '.')}{found[3]}"

    parts = CODE.split(SWITCH.sub("", markdown))
    for place in range(0, len(parts), 2):
        text = LINK.sub(linked, parts[place]).replace("][", "]\\[")
        text = re.sub(r"^# Vitral$", PANES, text, flags=re.M)
        text = text.replace("<details>", '<details markdown="1">')
        text = re.sub(r"<summary>(.*?)</summary>", lambda found: found[0].replace("\\", ""), text)
        parts[place] = re.sub(r"^(?![ >|#*\-\d])(.+)\n(?=(?:- |\d+\. ))", r"\1\n\n", text, flags=re.M)
    return re.sub(rf"\[([^\]]*)\]\({ENGLISH}none\)", r"\1", "".join(parts))


def on_page_content(html_text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML; a cell without a heading is none."""
    html_text = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html_text)
    pattern = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'

    def formula(found: re.Match[str]) -> str:
        is_block = found[1] == "div"
        text = html.unescape(found[2].strip()).replace("\\cr", "\\\\").replace("{aligned}", "{align*}")
        made = convert(text, display="block" if is_block else "inline")
        return f'<div class="formula" tabindex="0">{made}</div>' if is_block else made

    return re.sub(pattern, formula, html_text, flags=re.DOTALL)


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """The same page in the other language, or its first one."""
    name = page.file.src_uri
    is_there = (ROOT / "docs/pt" / name).exists() or f"pt/{name}" in _made()
    other = page.file.dest_uri if is_there else "index.html"
    english, portuguese = (
        (page.file.dest_uri, f"pt/{other}") if LANGUAGE == "en" else (ENGLISH + other, page.file.dest_uri)
    )
    config.extra["alternate"] = [
        {"name": "English", "link": english, "lang": "en"},
        {"name": "Português", "link": portuguese, "lang": "pt"},
    ]
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The addresses of English pages, from here; and what readers of screens miss in the theme."""
    up = "../" * (page.file.dest_uri.count("/") + (LANGUAGE == "pt"))
    output = output.replace(f'"{ENGLISH}', f'"{up}')
    titled = (
        r'aria-labelledby="(__nav_[\d_]+)_label"([^>]*>\s*<label class="md-nav__title" for="\1">\s*<span[^>]*></span>'
    )
    titled += r"\s*([^<]*\S))"
    output = re.sub(titled, lambda found: f'aria-label="{found[3]}"{found[2]}', output)
    label = "Busca" if LANGUAGE == "pt" else "Search"
    return output.replace(
        'data-md-component="search" role="dialog"', f'data-md-component="search" role="dialog" aria-label="{label}"'
    )


# ------------------------------------------------------------------------------------------------- pages of the program


def _commands() -> str:
    """Every command with its options, from the signatures of which `vitral --help` is made."""
    import click
    from typer.main import get_command

    from vitral.app.terminal import COMMANDS, app
    from vitral.app.terminal.help import in_capitals, option_help

    parts = [""]
    group: Any = get_command(app)
    for each in COMMANDS:
        command = group.commands[each.name]
        context = click.Context(command, info_name=f"vitral {each.name}", max_content_width=10**6)
        usage = " ".join(["vitral", each.name, *(in_capitals(one) for one in command.collect_usage_pieces(context))])
        rows = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
        parts += [f"## {each.name}", f"```text\n{usage}\n```", html.escape(command.help or "", quote=False)]
        parts.append("\n".join(f"`{in_capitals(name)}`\n: {_cell(option_help(said))}\n" for name, said in rows))
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    """A sentence of the terminal in Markdown."""
    return re.sub(r"([\\<>*_|\[\]])", r"\\\1", re.sub(r"\s+", " ", text))


def _python() -> str:
    """The public names, each described by its docstring."""
    import vitral

    groups: dict[str, list[str]] = {}
    for name in sorted(vitral.__all__, key=lambda name: (ORDER.index(_group(getattr(vitral, name))), name)):
        groups.setdefault(_group(getattr(vitral, name)), []).append(name)
    text = "# Python\n\nA run is a folder or an object; a result has `plain()`, `to_pandas()` and a page.\n"
    for title, names in groups.items():
        text += f"\n## {title}\n"
        for name in names:
            held = getattr(vitral, name)
            text += f"\n::: {held.__module__}.{held.__qualname__}\n"
            text += "    options: {members_order: source, show_bases: false}\n" if isinstance(held, type) else ""
    return text


ORDER = ("A run", "Train", "Ask a run", "Look", "Compare", "Worked examples", "Carry a run", "Attention", "Errors")
"""Of the headings of the page of Python."""


def _group(held: Any) -> str:
    """The heading under which a public name stands."""
    if isinstance(held, type):
        return "Errors" if issubclass(held, BaseException) else "A run"
    titles = {
        "ask": "Ask a run",
        "carry": "Carry a run",
        "explain": "Worked examples",
        "study": "Compare",
        "train": "Train",
    }
    return titles.get(held.__module__.rpartition(".")[2], "Attention" if "attention" in held.__module__ else "Look")


def _activations() -> str:
    """The names of activations beside TransformerLens'."""
    import vitral
    from vitral.report.markdown import markdown as written

    title = {"en": "Names of activations", "pt": "Nomes das ativações"}[LANGUAGE]
    text = {
        "en": "`run.trace(text, names)` gives these; N is the number of a block. TransformerLens' names work, too.",
        "pt": "`run.trace(texto, nomes)` as devolve; N é o número de um bloco. Valem também os do TransformerLens.",
    }[LANGUAGE]
    return written(title, [vitral.list_names().table()]).replace("\n\n", f"\n\n{text}\n\n", 1)


def _glossary() -> str:
    """The words of screens and pages, as `vitral list words` explains them."""
    import vitral
    from vitral.core.language import _

    words = vitral.list_words().descriptions
    title = {"en": "Glossary", "pt": "Glossário"}[LANGUAGE]
    return f"# {title}\n\n" + "\n".join(f"{_(word)}\n: {_cell(_(said))}\n" for word, said in words.items())


def _notebook(path: Path) -> str:
    """A notebook as a page, with the outputs of its cells."""
    import nbformat

    book = nbformat.read(path, as_version=4)
    if EXECUTES:
        from nbclient import NotebookClient

        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(book, timeout=600, resources={"metadata": {"path": folder}}).execute()
    return "\n\n".join(part for cell in book.cells for part in _cell_parts(cell))


def _cell_parts(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield f"```python\n{cell.source}\n```"
    for output in cell.outputs:
        data = output.get("data", {})
        if "text/html" in data:  # in one line, which Markdown leaves alone; the script in a frame stays as it is
            shown = re.sub(r"<style scoped>.*?</style>", "", data["text/html"], flags=re.DOTALL)
            shown = re.sub(r'srcdoc="[^"]*"', lambda found: found[0].replace("\n", "&#10;"), shown)
            yield re.sub(r"\n\s*", " ", shown)
        elif output.get("name") != "stderr":
            text = output.get("text") or data.get("text/plain", "")
            plain = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
            yield f"```text\n{plain}\n```"

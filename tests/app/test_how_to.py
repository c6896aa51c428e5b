"""docs/how-to and the README: the Python of their pages runs, with a stub of the tracker."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

import vitral

pytestmark = pytest.mark.merge

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in DOCS.glob("**/how-to/*.md") if "```python" in page.read_text(encoding="utf-8")]
PAGES += [DOCS.parent / "README.md", DOCS / "pt/README.md"]
FORMS = ("{0}", "24/12/2025, 18:05 - {0}", "\u200e[24/12/25, 6:05:01\u202fPM] {0}")
"""Of an exported chat: names alone, of Android, of iOS."""
MODEL = {"d_model": 12, "num_layers": 1, "num_heads": 3, "context_length": 101}
TRAINING = {"steps": 4, "evaluate_every": 2, "batch_size": 5, "sample_every": 2, "sample_tokens": 9}
SMALL = {"model": MODEL, "training": TRAINING}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_its_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    turns = "Ana: the night {0}\nBea: and the day {0}\nAna: and whe {0}?\nBea: To be\nO. Era uma vez a line of nobody\n"
    plain = [turn for n in range(120) for turn in turns.format(n).splitlines(keepends=True)]
    dated = "".join(FORMS[1 + place % 2].format(turn) for place, turn in enumerate(plain)) + "Bea, at home: no date\n"
    for name in ("my.txt", "meu.txt", "chat.txt", "conversa.txt"):
        Path(name).write_text(dated, encoding="utf-8")
    tracker = Mock()
    monkeypatch.setitem(sys.modules, "trackio", tracker)
    monkeypatch.setattr(vitral, "train", partial(vitral.train, tokenizer="char", **SMALL))
    for name in ("my", "meu"):
        if f'load("runs/{name}")' in blocks[0]:
            vitral.train("my.txt", out=f"runs/{name}")
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block.replace(", minutes=2", ""), page.name, "exec"), names)  # as a reader does
    if "track" in page.stem:
        assert tracker.init.call_args.kwargs["config"]["parameters"] > 0
        said = [one for one in tracker.log.call_args_list if "evaluation/validation_loss" in one.args[0]]
        assert [one.kwargs["step"] for one in said] == [2, 4]
        assert tracker.mock_calls[-1] == call.finish()
    if page.stem == "chats":
        assert len(names["chats"]) == 480 / 6  # no form of a line is left out
        for name in ("chat.txt", "conversa.txt"):
            Path(name).write_text("".join(plain), encoding="utf-8")
        exec(blocks[0], names)
        assert len(names["chats"]) == 480 / 6
        assert vitral.train(next(Path().glob("*.jsonl")), out="runs/talk").sealed.config.corpus.records is not None

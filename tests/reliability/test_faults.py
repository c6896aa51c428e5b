"""A fault of Vitral looks like one: whatever is not foreseen ends every command with exit code 70 and one line."""

import shutil
from pathlib import Path

import pytest
from tiers import few

from vitral.app.terminal import run as command
from vitral.runs import RunFolder

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
TRAIN, INSPECT, EXPLAIN = "train RUN/config.toml --out OUT", "inspect RUN --text the", "explain RUN --text the"
EVALUATE = "evaluate RUN --no-copying"
FAULTS = {
    "vitral.model.transformer.Transformer.forward": (EVALUATE, INSPECT, EXPLAIN, TRAIN, "compare RUN RUN2"),
    "vitral.attention.multihead.MultiHeadAttention.project": (EVALUATE, INSPECT, EXPLAIN, TRAIN),
    "vitral.data.tokenizers.Tokenizer.encode": ("generate RUN --prompt the", INSPECT, EXPLAIN),
    "vitral.decoding.sampling.keep_top_k": ("generate RUN --top-k 2 --no-cache",),
    "vitral.decoding.generation.uniforms": ("generate RUN", "generate RUN --samples 2", "evaluate RUN"),
    "vitral.decoding.beam.distribution": ("generate RUN --beams 2",),
    "vitral.evaluation.losses.token_sizes": (EVALUATE,),
    "vitral.inspection.one_text.attention_maps": (INSPECT,),
    "vitral.explanation.walks.trace_text": (EXPLAIN,),
    "vitral.explanation.checks.checker._Checker.report": ("check the-cat-sat",),
    "vitral.explanation.grading.sheets.grade_document": ("grade CLASS --key KEY",),
    "vitral.training.loop.one_step": (TRAIN,),
    "vitral.page.content.graphs_of": ("bundle RUN --out OUT",),
    "vitral.runs.sealed._require_identity": ("generate RUN", EVALUATE, "doctor RUN", "resume RUN", "bundle RUN"),
    "vitral.report.runs.run_row": ("list runs RUN",),
}


CASES = [
    (kind, place, line) for kind in (AttributeError, ValueError) for place, lines in FAULTS.items() for line in lines
]


@pytest.mark.parametrize(("kind", "place", "line"), few(CASES, 5))
def test_a_fault_inside_is_no_mistake_of_the_user(
    kind: type[Exception],
    place: str,
    line: str,
    straight: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*given: object, **options: object) -> None:
        raise kind("'NoneType' object has no attribute 'inside'")

    other = shutil.copytree(straight.path, tmp_path / "other")
    paths = {"RUN2": other, "RUN": straight.path, "OUT": tmp_path / "out"}
    paths |= {"CLASS": COURSE / "class", "KEY": COURSE / "class-key.toml"}
    words = line.split()
    for name, path in paths.items():
        words = [word.replace(name, str(path)) for word in words]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, fails)
    assert command(words) == 70
    last = capsys.readouterr().err.splitlines()[-1]
    assert kind.__name__ in last
    assert "VITRAL_TRACEBACK=1" in last

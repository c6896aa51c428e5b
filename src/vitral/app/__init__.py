"""The library's face: `vitral.train`, `vitral.load`, `vitral.study` and the other operations, named as the commands.

A function here takes what its command takes, refuses what its command refuses (`vitral.core.errors.VitralError`),
and returns an object instead of printing. A run may be given as its folder or as a `Run`. Results are plain objects:
`print` shows what the command prints, a notebook shows the page, `plain()` is ready for JSON, `to_pandas()` is a table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitral.app.calls import validated
from vitral.core.language import LANGUAGES, _, recognised
from vitral.core.language import set_language as choose_language
from vitral.core.lazy import uncollected

if TYPE_CHECKING:
    from vitral.app.facade.ask import evaluate, generate, inspect, load
    from vitral.app.facade.carry import bundle, export, import_, open_
    from vitral.app.facade.explain import check, exercise, explain, grade
    from vitral.app.facade.look import (
        count,
        doctor,
        forecast,
        list_examples,
        list_presets,
        list_studies,
        list_texts,
        survey,
    )
    from vitral.app.facade.study import compare, demo, study
    from vitral.app.facade.train import continue_, resume, train
    from vitral.app.given import free_folder
    from vitral.app.results import Bundle, DemoPage, Inspection, Names, Samples
    from vitral.app.run import Run
    from vitral.compare.comparison import RunComparison
    from vitral.core.parts import register
    from vitral.evaluation.measures import Measures, TextMeasures
    from vitral.report.graded_class import GradedClass
    from vitral.report.model import ModelCount
    from vitral.report.runs import RunList, list_runs
    from vitral.report.study import StudyPage
    from vitral.report.survey import Survey
    from vitral.studies.plan import StudyPlan, plan_study
    from vitral.training.configuration import Preset, configure, presets

__all__ = [
    "Bundle",
    "DemoPage",
    "GradedClass",
    "Inspection",
    "Measures",
    "ModelCount",
    "Names",
    "Preset",
    "Run",
    "RunComparison",
    "RunList",
    "Samples",
    "StudyPage",
    "StudyPlan",
    "Survey",
    "TextMeasures",
    "bundle",
    "check",
    "compare",
    "configure",
    "continue_",
    "count",
    "demo",
    "doctor",
    "evaluate",
    "exercise",
    "explain",
    "export",
    "forecast",
    "free_folder",
    "generate",
    "grade",
    "import_",
    "inspect",
    "list_examples",
    "list_presets",
    "list_runs",
    "list_studies",
    "list_texts",
    "load",
    "open_",
    "plan_study",
    "presets",
    "register",
    "resume",
    "set_language",
    "study",
    "survey",
    "train",
]

_MODULES = {
    "app.facade.ask": "evaluate generate inspect load",
    "app.facade.carry": "bundle export import_ open_",
    "app.facade.explain": "check exercise explain grade",
    "app.facade.look": ("count doctor forecast list_examples list_presets list_studies list_texts survey"),
    "app.facade.study": "compare demo study",
    "app.facade.train": "continue_ resume train",
    "app.given": "free_folder",
    "app.results": "Bundle DemoPage Inspection Names Samples",
    "app.run": "Run",
    "studies.plan": "StudyPlan plan_study",
    "compare.comparison": "RunComparison",
    "core.parts": "register",
    "evaluation.measures": "Measures TextMeasures",
    "report.graded_class": "GradedClass",
    "report.model": "ModelCount",
    "report.runs": "RunList list_runs",
    "report.study": "StudyPage",
    "report.survey": "Survey",
    "training.configuration": "Preset configure presets",
}
_BARE = {"configure", "list_runs", "register"}
"""Functions of lower rooms, whose arguments are validated here."""
_ELSEWHERE = {name: f"vitral.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import an operation when it is first asked for: one that draws nothing does not wait for matplotlib."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with uncollected():
        found = getattr(import_module(_ELSEWHERE[name]), name)
        return globals().setdefault(name, validated(found) if name in _BARE else found)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})


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

"""The library's face: `vitral.train`, `vitral.load`, `vitral.study` and the other operations, named as the commands.

A function here takes what its command takes, refuses what its command refuses (`vitral.core.errors.VitralError`),
and returns an object instead of printing. A run may be given as its folder or as a `Run`. Results are plain objects:
`print` shows what the command prints, a notebook shows the page, `plain()` is ready for JSON, `to_pandas()` is a table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitral.core.checked import checked
from vitral.core.language import LANGUAGES, _, recognised
from vitral.core.language import set_language as choose_language
from vitral.core.lazy import uncollected
from vitral.core.parts import register

if TYPE_CHECKING:
    from vitral.lab.before_training import count, survey
    from vitral.lab.checkups import doctor
    from vitral.lab.configuration import Preset, configure, presets
    from vitral.lab.experiments import DemoPage, demo, study
    from vitral.lab.forecasting import forecast
    from vitral.lab.grading import grade
    from vitral.lab.inspected import Inspection
    from vitral.lab.interchange import export, import_
    from vitral.lab.measured_text import TextMeasures
    from vitral.lab.measures import Measures
    from vitral.lab.names import Names, list_examples, list_presets, list_studies, list_texts
    from vitral.lab.new_runs import continue_, continue_run, free_folder, resume, train
    from vitral.lab.pages import Bundle, bundle, open_
    from vitral.lab.run import Generation, Run, load
    from vitral.lab.samples import Samples
    from vitral.lab.side_by_side import compare
    from vitral.lab.study_plan import StudyPlan, plan_study
    from vitral.lab.trained_runs import evaluate, generate, inspect
    from vitral.lab.worked_examples import check, exercise, explain
    from vitral.reports.graded_class import GradedClass
    from vitral.reports.model import ModelCount
    from vitral.reports.runs import RunList, list_runs
    from vitral.reports.side_by_side import RunComparison
    from vitral.reports.study import StudyPage
    from vitral.reports.text import Survey

__all__ = [
    "Bundle",
    "DemoPage",
    "Generation",
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
    "continue_run",
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
    "lab.before_training": "count survey",
    "lab.checkups": "doctor",
    "lab.configuration": "Preset configure presets",
    "lab.experiments": "DemoPage demo study",
    "lab.forecasting": "forecast",
    "lab.grading": "grade",
    "lab.inspected": "Inspection",
    "lab.interchange": "export import_",
    "lab.measured_text": "TextMeasures",
    "lab.measures": "Measures",
    "lab.names": "Names list_examples list_presets list_studies list_texts",
    "lab.new_runs": "continue_ continue_run free_folder resume train",
    "lab.pages": "Bundle bundle open_",
    "lab.run": "Generation Run load",
    "lab.samples": "Samples",
    "lab.side_by_side": "compare",
    "lab.study_plan": "StudyPlan plan_study",
    "lab.trained_runs": "evaluate generate inspect",
    "lab.worked_examples": "check exercise explain",
    "reports.graded_class": "GradedClass",
    "reports.model": "ModelCount",
    "reports.runs": "RunList list_runs",
    "reports.side_by_side": "RunComparison",
    "reports.study": "StudyPage",
    "reports.text": "Survey",
}
_ELSEWHERE = {name: f"vitral.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import an operation when it is first asked for: one that draws nothing does not wait for matplotlib."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with uncollected():
        return globals().setdefault(name, getattr(import_module(_ELSEWHERE[name]), name))


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})


@checked
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

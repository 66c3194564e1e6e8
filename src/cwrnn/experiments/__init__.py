"""The experiments of the paper, and others with its networks, as Python functions.

    from cwrnn.experiments import reproduce_words
    print(reproduce_words(runs=2, workers=1))

Each function has defaults for all arguments, takes a callback for its progress, and returns a result that prints itself
as a table. The commands of `cwrnn` call the same functions.
"""

from importlib import import_module
from typing import Any

_MODULES: dict[str, str] = {
    "ArgumentError": "errors",
    "EvaluationResult": "evaluation.result",
    "ExperimentError": "errors",
    "Progress": "progress",
    "Recogniser": "words.recogniser.model",
    "Report": "report.page",
    "Reproduction": "reproduction_result",
    "Table": "tables",
    "backtest_forecaster": "forecasting.backtesting",
    "choose_clocks": "clocks.choice",
    "compare_clocks": "clocks.comparison",
    "evaluate": "evaluation.evaluation",
    "evolve_clocks": "clocks.evolution",
    "fit_forecaster": "forecasting.fitting",
    "inspect_network": "inspect.network",
    "learn_clocks": "clocks.learning",
    "load_corpus": "words.corpus",
    "make_forecast": "forecasting.prediction",
    "read_table": "tables",
    "recognise": "words.recogniser.recognition",
    "recognise_stream": "words.recogniser.recognition",
    "reproduce": "reproduction",
    "reproduce_generation": "reproduction",
    "reproduce_words": "reproduction",
    "train_recogniser": "words.recogniser.training",
    "write_report": "report.page",
}
"""The module of every public name. Modules are imported when a name is first used: some need packages of extras."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__

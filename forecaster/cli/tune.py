"""`forecaster tune`: a table → the best settings of many trials, and a model with them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options


@options.flags_of(api.tune, "metrics", "refit")
def tune(
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="WQL, MASE, MSE, MAE, RMSE or sMAPE; repeated: a Pareto study. Of a classifier: log_loss."
        ),
    ] = None,
    **given: Any,
) -> dict[str, Any]:
    """Search for better settings than those of a config.

    Each trial is fitted and then scored on later rows of the table; the first one is the config as it
    is. The best settings are written to STUDY.best.yaml, for fit --config. The same command resumes a
    search, and joins in from another machine.
    """
    from forecaster.config import load_config

    study = api.tune(
        config=load_config(config, sets or ()),
        metrics=metric,
        refit=given["out"] is not None or given["register"] is not None,
        **given,
    )
    return {
        "study": study.name,
        "metrics": study.metrics,
        "best_value": study.best_value,
        "preset_value": study.preset_value,
        "best": study.best.model_dump(mode="json"),
        "trials": study.trials,
        "out": given["out"],
    }

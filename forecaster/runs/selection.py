"""Which model a fit keeps: the default, or one that a leaderboard inside the training rows shows to be better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.config import Config, DataConfig, TrackingConfig, required_horizon
from forecaster.errors import DataError
from forecaster.evaluation.backtest import skills_over
from forecaster.evaluation.comparison import EXPERTS, MODEL, NO_FIT, expert_of
from forecaster.forecast.card import FEWEST_CUTOFFS
from forecaster.panel.panel import Panel
from forecaster.runs.console import Screen
from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline

_WINDOWS = FEWEST_CUTOFFS
_SHARE = 0.9
"""Of the interval of the difference, which has to lie below 0."""


@dataclass(frozen=True)
class Selection:
    """What a fit keeps."""

    name: str
    """Of the row: "forecaster" is the default."""
    config: Config
    """The request that makes it."""
    text: str
    """By how much, and in which seconds."""

    @property
    def fits(self) -> bool:
        """Whether something is fitted at all."""
        return self.name != NO_FIT


def select(
    panel: Panel, config: Config, source: tuple[object, DataConfig, object], console: Screen
) -> Selection:
    """Returns the best of the default, no fit, all experts and each alone, on some windows of the training rows.

    Another one than the default is kept only where the 90 % interval of WQL / WQL of the default − 1 lies below 0.

    Args:
        panel: the training rows.
        config: the request of the default.
        source: the table of the panel, how it was read, and the second table.
        console: says how far it is.

    Raises:
        DataError: the table has too little history for the windows.
    """
    options = BacktestOptions(windows=_WINDOWS)
    untracked = TrackingConfig(enabled=False)
    with console.stage(f"comparing models on {_WINDOWS} windows"):
        try:
            board = run_backtest_pipeline(
                config, panel, options, untracked, source, quiet=True, name=None, command="", presets={}
            )
        except DataError as error:
            horizon = required_horizon(config)
            raise DataError(
                f"--select compares models on {_WINDOWS} windows of horizon {horizon} inside the training rows: "
                f"{error}; or leave out --select"
            ) from error
    skills = skills_over(MODEL, board.forecasts, board.tallies, _SHARE)
    others = [name for name in skills if name in (NO_FIT, EXPERTS) or expert_of(name)]
    best = min(others, key=lambda name: np.nan_to_num(board.scores[name]["WQL"], nan=np.inf))
    skill = skills[best]
    name = best if skill.low > 0 else MODEL
    mine, theirs = (board.seconds[one] for one in (MODEL, best))
    verdict = "replaces the default" if name == best else "does not replace the default"
    text = (
        f"select: {best} {verdict}: its WQL is {100 * abs(skill.skill):.1f} % "
        f"{'lower' if skill.skill > 0 else 'higher'} on {_WINDOWS} windows (90 % interval of the difference "
        f"{-100 * skill.high:+.1f} to {-100 * skill.low:+.1f} %), in {theirs:.1f} s, the default in {mine:.1f} s"
    )
    return Selection(name, _made(name, config), text)


def _made(name: str, config: Config) -> Config:
    """The request that makes the model of a row."""
    if name == EXPERTS:  # without validation windows no network is trained beside them
        return config.replaced(
            model={"experts": config.model.experts or None}, fit={"validation": None}
        )
    if name == NO_FIT:
        return config.replaced(model={"experts": None})
    expert = expert_of(name)
    return config if expert is None else config.replaced(model={"experts": (expert,)})

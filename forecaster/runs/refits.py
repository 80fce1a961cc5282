"""Which weights forecast which cutoff of a backtest, and the ridge floor fitted beside them.

What comes in: an artifact, an open panel, the cutoffs and when to fit. What goes out: forecasts of the
model and of its floor at every cutoff. Promised: weights have seen no row after a cutoff they forecast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from rich.console import Console

from forecaster.config import Config
from forecaster.errors import DataError, ForecasterError
from forecaster.evaluation.backtest import Said
from forecaster.evaluation.rivals import MODEL, RIDGE
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.runs import announce
from forecaster.runs.fit import fit_panel, prepare
from forecaster.runs.linear import fit_floor
from forecaster.runs.progress import TrainingBar
from forecaster.runs.training.train import Surroundings
from forecaster.runs.transfer import from_scratch

Refit = Literal["once", "each", "never"]


class Refits:
    """Forecasts at cutoffs, by weights that have not seen them."""

    def __init__(
        self,
        artifact: Artifact,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int,
        refit: Refit,
        console: Console,
    ):
        """Takes what is to be forecast.

        Args:
            artifact: gives the config, and with `refit="never"` the weights.
            panel: opened with the artifact's schema.
            cutoffs: all there will be, rising.
            horizon: leads; what the model can reach.
            refit: "once" before the first cutoff, "each" before every one, or "never".
            console: where to say what is fitted.
        """
        self._artifact, self._panel, self._cutoffs = artifact, panel, cutoffs
        self._horizon, self._refit, self._console = horizon, refit, console
        self._models: dict[str, tuple[Predictor, Panel]] = {}

    @property
    def artifact(self) -> Artifact:
        """The model that forecasts now; before any forecast, the one it takes the config from."""
        return self._models[MODEL][0].artifact if self._models else self._artifact

    def said(self, cutoffs: Sequence[int]) -> Iterator[Said]:
        """Yields the forecasts at some neighbouring cutoffs, by model.

        Raises:
            DataError: the rows before a cutoff are too few to fit.
        """
        for some in [[one] for one in cutoffs] if self._refit == "each" else [list(cutoffs)]:
            if self._refit == "each" or not self._models:
                self._settle(some[0])
            made = [self._made(*model, some) for model in self._models.values()]
            yield from (
                dict(zip(self._models, forecasts, strict=True)) for forecasts in zip(*made, strict=True)
            )

    def _made(self, predictor: Predictor, panel: Panel, cutoffs: Sequence[int]) -> list[Forecast]:
        model = predictor.artifact.config.model
        # What it draws anyway is scored, too.
        num_samples = model.paths if model.decoder == "autoregressive" else None
        return predictor.forecasts_at(panel, cutoffs, self._horizon, num_samples)

    def _settle(self, cutoff: int) -> None:
        """Fits what forecasts from this cutoff on."""
        served = [cutoff] if self._refit == "each" else self._cutoffs
        artifact, floor = self._artifact, None
        if self._refit == "never":
            announce.cutoffs(self._console, self._panel, served, None)
            floor = self._floor(artifact, artifact.trained_until)
        else:
            artifact = self._fitted(cutoff)
            announce.cutoffs(self._console, self._panel, served, cutoff)
            floor = self._floor(artifact, cutoff)
        self._models = {
            name: (Predictor(model), recoded(self._panel, model.schema.categories))
            for name, model in ((MODEL, artifact), (RIDGE, floor))
            if model is not None
        }

    def _fitted(self, cutoff: int) -> Artifact:
        """Returns the same config fitted to the rows up to a cutoff."""
        seen = self._panel.until(cutoff)
        try:
            # From random weights: those a warm start began with are not kept, and may have seen more.
            config, split = prepare(seen, from_scratch(self._artifact.config))
        except DataError as error:
            when = self._panel.calendar.text(cutoff)
            raise DataError(
                f"refit before the cutoff {when}: {error}; or use fewer --windows"
            ) from error
        watched = Surroundings(callbacks=(TrainingBar(self._console),))
        return fit_panel(seen, config, split, watched)

    def _floor(self, artifact: Artifact, until: int) -> Artifact | None:
        """Returns the linear part of a model alone, or one fitted to the same rows."""
        own = artifact.ensemble.linear_only()
        if own is not None:
            return replace(artifact, ensemble=own)
        seen = self._panel.until(until)
        try:
            config, split = prepare(seen, _straight(artifact.config, self._horizon))
            return fit_floor(seen, config, split)
        except ForecasterError as error:
            announce.sentence(self._console, f"no {RIDGE} in the table: {error}")
            return None


def _straight(config: Config, horizon: int) -> Config:
    """Returns settings of linear maps alone, for a model whose network has none."""
    fit = config.fit
    return Config(horizon=horizon, data=config.data, target=config.target).replaced(
        model={"linear": "blend", "quantile_levels": config.model.quantile_levels},
        fit={"validation": fit.validation, "validation_windows": fit.validation_windows},
    )

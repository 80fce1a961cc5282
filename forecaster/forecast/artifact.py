"""A trained model: an ensemble, and what is needed to use it.

`saved_model.py` writes and reads its folder, `card.py` describes it in words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic

from typing_extensions import TypeIs, TypeVar

from forecaster.config import Config, Plan, TrackingConfig
from forecaster.forecast.paths import Measurable
from forecaster.model.class_network import ClassEnsemble
from forecaster.model.embedding import Shape
from forecaster.model.ensemble import Ensemble
from forecaster.panel.arrays import Ints
from forecaster.panel.calendar import Calendar
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.windows.effects import Effects

Kind = TypeVar("Kind", Ensemble, ClassEnsemble, default=Ensemble)


@dataclass(frozen=True, repr=False)
class Artifact(Generic[Kind]):
    """A trained ensemble and what is needed to use it; `Artifact[ClassEnsemble]` of a classifier."""

    schema: Schema
    """Columns, categories and frequency of the training table."""
    plan: Plan
    """The resolved settings."""
    shape: Shape
    """Counts the networks were built for."""
    ensemble: Kind
    """Inputs → quantiles, or probabilities of classes."""
    trained_until: int
    """Time of the last target that weights, scalers or early stopping have seen."""
    data: str
    """Name of the training table."""
    fingerprint: str
    """Of its panel."""
    series_hashes: Ints | None = None
    """[N, 4] of `classification.series_hashes`; None = of a forecaster."""
    errors: Measurable | None = None
    """Errors at earlier cutoffs, which order sample paths; None = of a classifier, or of a decoder that draws
    paths itself."""
    effects: Effects | None = None
    """Of known covariates, which the ensemble does not forecast; None = there are none."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Validation scores and loss curves."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the packages at training, and the git commit if there was one."""
    parent: dict[str, Any] | None = None
    """Data and fingerprint of the artifact that training started from."""
    request: Config | None = None
    """The settings before any was chosen from the data, without tracking; None = not known."""

    @property
    def requested(self) -> Config:
        """The settings to fit again on other rows: the request, else the plan."""
        return self.request or self.plan.as_config(TrackingConfig())

    @property
    def horizon(self) -> int:
        """Steps of one forecast."""
        return self.shape.horizon

    @property
    def context_length(self) -> int:
        """Steps before the cutoff that a forecast reads."""
        return self.plan.model.context_length

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes in words, in the order of the probabilities; none where values are forecast."""
        return self.schema.categories.get(self.schema.label or "", ())

    @property
    def read_schema(self) -> Schema:
        """Of a table to predict: without a class column."""
        return replace(self.schema, label=None)

    @property
    def ancestry(self) -> dict[str, Any]:
        """The record of this artifact that artifacts started from it keep."""
        return {
            "data": self.data,
            "fingerprint": self.fingerprint,
            "freq": self.schema.freq,
            "trained_until": self.trained_until,
            "until": self.schema.calendar.text(self.trained_until),
            "parent": self.parent,
        }


def is_forecaster(
    artifact: Artifact[Ensemble] | Artifact[ClassEnsemble],
) -> TypeIs[Artifact[Ensemble]]:
    """Whether a model forecasts; else it classifies."""
    return artifact.shape.classes == 0


def shape_of(panel: Panel, horizon: int) -> Shape:
    """Returns the counts that a network for this panel is built from."""
    return replace(declared_shape(panel.schema, panel.calendar, horizon), regular=panel.regular)


def declared_shape(schema: Schema, calendar: Calendar, horizon: int) -> Shape:
    """Returns the counts that the columns of a table ask of a network."""

    def sizes(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(len(schema.categories[name]) for name in names)

    return Shape(
        horizon=horizon,
        channels=len(schema.target),
        past=len(schema.past_numeric),
        known=len(schema.known_numeric),
        static=len(schema.static_numeric),
        past_categories=sizes(schema.past_category),
        known_categories=sizes(schema.known_category),
        static_categories=sizes(schema.static_category),
        cycles=len(calendar.cycles),
        regular=schema.regular,
        classes=sum(sizes(schema.label_columns)),
    )

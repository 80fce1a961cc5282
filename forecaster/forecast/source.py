"""How a saved model opens the table that it forecasts, classifies or explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from forecaster.config import config_from
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.model_folder import reading_with
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Only, Panel


@dataclass(frozen=True)
class Source:
    """The table to predict."""

    data: object
    """Path, glob, URL, frame or store; or the panel of one, as opened."""
    future: object | None = None
    """Covariates known in advance."""
    covariates: object | None = None
    """Second table."""
    roles: Mapping[str, Any] = field(default_factory=dict)
    """Columns with another name, and how the table is read."""
    only: Only = None
    """Series to predict."""

    @property
    def tables(self) -> tuple[object, ...]:
        """All tables that are read."""
        return self.data, self.future, self.covariates

    def panel(
        self, artifact: Artifact[Any], with_classes: bool = False, with_new_words: bool = False
    ) -> Panel:
        """Returns the panel of all series with a model's roles, categories and frequency.

        It is in memory unless the table is a store; `with_classes`: with its class column; `with_new_words`: with
        codes for words that the model does not know.
        """
        declared, fitted = config_from(None, None, self.roles).data, artifact.plan.data
        schema = (artifact.schema if with_classes else artifact.read_schema).renamed(declared)
        if fitted.resample is not None and declared.agg not in (None, fitted.agg):
            raise ConfigError(f"--agg {declared.agg}: this model was fitted with {fitted.agg}")
        if isinstance(self.data, Panel):
            return self.data
        others: Any = {"covariates": self.covariates, "future": self.future}
        opened = partial(open_panel, self.data, reading_with(fitted, self.roles), **others)
        panel = opened(schema=schema)
        extended = set(panel.unmet) if with_new_words else {schema.label} & set(panel.unmet)
        if extended:
            # Words that the model has not learned come after its own.
            words = {name: (*schema.categories[name], *panel.unmet[name]) for name in extended if name}
            panel = opened(schema=replace(schema, categories={**schema.categories, **words}))
        return panel


def coded(panel: Panel, artifact: Artifact[Any]) -> Panel:
    """Returns a panel, opened without a model, in the categories and cycles of one."""
    schema = artifact.schema
    return recoded(panel, schema.categories).with_cycles(schema.season_length, schema.periods)

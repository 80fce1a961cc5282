"""A fit that starts from another artifact's weights: what must agree, what is taken, what is said.

What comes in: an artifact to start from, and a table with a config. What goes out: a config with the
artifact's network, a panel that knows the artifact's categories, weights in a new network. Promised:
what cannot agree is refused before training, all faults at once; nothing that the old weights have seen
is forgotten (`seen_until`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from forecaster.config import Config, ModelConfig, ModelPlan
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.embedding import Shape
from forecaster.model.network import Network
from forecaster.model.transfer import KINDS, Meaning, Part, adapt, carry, check_weights, freeze_encoder
from forecaster.panel.calendar import Calendar
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema

FREE = (
    "dropout",
    "context_length",
    "attention_length",
)
"""Settings of `model` that say nothing about weights, so that a config may have its own."""
_SOLVED = (
    "lookbacks",
    "linear_spans",
    "linear_phases",
    "linear_calendar",
    "linear_lags",
    "linear_units",
    "linear_period",
    "ridge_alpha",
)
"""Settings of linear maps, which are solved for each table afresh."""


@dataclass(frozen=True)
class Start:
    """Where a fit starts."""

    artifact: Artifact
    """Its weights."""
    say: Callable[[list[Part]], None] = lambda parts: None
    """Told what was carried, before training."""


def started_config(config: Config, start: Artifact | None) -> Config:
    """Returns the config with the network of an artifact; settings left at their defaults are its.

    Args:
        config: as asked for.
        start: whose weights; None = there are none, the config is as it was.

    Raises:
        ConfigError: settings contradict the artifact's, or need an artifact and there is none.
    """
    fit = config.fit
    if start is None:
        asked = {"freeze_encoder": fit.freeze_encoder, "adapters": fit.adapters}
        for name, value in asked.items():
            if value:
                raise ConfigError(
                    f"fit.{name} {str(value).lower()}: only weights that have learned something can "
                    f"stay as they are; give some with --from MODEL, or set it to "
                    f"{'false' if value is True else 'null'}"
                )
        return config
    if len(start.ensemble.members) > 1:
        raise ConfigError(
            f"--from: the artifact has {len(start.ensemble.members)} members, one network is wanted: "
            "start from an artifact of one"
        )
    own, theirs, usual = config.model, start.config.model, ModelConfig()
    model, faults = {}, []
    for name in ModelConfig.model_fields:
        wanted, found = getattr(own, name), getattr(theirs, name)
        if name == "linear":
            found = found or "none"  # as it was before there were any
        if name in _SOLVED:
            model[name] = wanted
            continue
        asked_for = wanted != getattr(usual, name)
        model[name] = wanted if asked_for and name in FREE else found
        if asked_for and wanted != found and name not in FREE:
            faults.append(
                f"--from: model.{name} {_text(wanted)} is asked for, the artifact's weights are made "
                f"for {_text(found)}; leave it out to take theirs"
            )
    shorter, reads = model["context_length"], model["attention_length"]
    if shorter is not None and reads is not None and own.attention_length is None:
        model["attention_length"] = min(reads, shorter)
    smallest = min(theirs.width, theirs.feed_forward)
    if fit.adapters is not None and fit.adapters >= smallest:
        faults.append(
            f"fit.adapters {fit.adapters}: a change of low rank has fewer than the {smallest} of the "
            f"artifact's smallest matrix (width {theirs.width}, feed_forward {theirs.feed_forward})"
        )
    if faults:
        raise ConfigError("\n".join(faults))
    return config.replaced(model=model, horizon=config.horizon or start.horizon)


def from_scratch(config: Config) -> Config:
    """Returns the config without what only weights that have learned something can have."""
    return config.replaced(fit={"freeze_encoder": False, "adapters": None})


def check_start(panel: Panel, config: Config, start: Artifact) -> None:
    """Refuses a table and a config that an artifact's weights are not made for.

    Args:
        panel: the table.
        config: resolved, with the artifact's network.
        start: the artifact.

    Raises:
        ConfigError: covariates are missing, or weights differ in shape.
    """
    assert config.horizon is not None
    _check_covariates(panel.schema, start)
    with torch.random.fork_rng(devices=[]):
        wanted = Network(ModelPlan.of(config.model), started_shape(panel, config.horizon, start))
    check_weights(_network(start), wanted)


def _check_covariates(schema: Schema, start: Artifact) -> None:
    """Refuses a table that lacks covariates which the artifact was fitted with.

    Raises:
        ConfigError: some are missing, or have another role or kind; all are named at once.
    """
    theirs = start.schema
    faults = []
    for kind in KINDS:
        for what in ("numeric", "category"):
            for name in getattr(theirs, f"{kind}_{what}"):
                if name not in getattr(schema, f"{kind}_{what}"):
                    expected = f"{kind} {'category' if what == 'category' else 'number'}"
                    faults.append(f"'{name}' (expected a {expected}, found {_role(schema, name)})")
    if faults:
        has = [name for kind in KINDS for name in getattr(schema, kind)]
        raise ConfigError(
            f"--from: the artifact was fitted with covariates that this table does not give: "
            f"{', '.join(faults)}; this table's covariates are {', '.join(has) or 'none'}. Add or "
            "declare them (further ones are welcome), or start from an artifact without them"
        )


def with_words_of(panel: Panel, start: Artifact) -> Panel:
    """Returns the panel in the codes of both: the artifact's categories, then others."""
    known = start.schema.categories
    both = {
        name: tuple(dict.fromkeys((*known.get(name, ()), *words)))
        for name, words in panel.schema.categories.items()
    }
    return recoded(panel, both)


def started_shape(panel: Panel, horizon: int, start: Artifact | None) -> Shape:
    """Returns the counts of a network; one that was told of gaps between rows is told of them again."""
    shape = shape_of(panel, horizon)
    told = start is not None and not start.shape.regular
    return replace(shape, regular=False) if told else shape


def take_weights(network: Network, panel: Panel, config: Config, start: Start) -> None:
    """Puts an artifact's weights into a new network, says so, and keeps still what is to stay.

    Args:
        network: with the moments of the panel's training rows.
        panel: whose covariates hold the artifact's, in the codes of both.
        config: says what stays.
        start: the artifact.

    Raises:
        ConfigError: weights do not fit.
    """
    artifact = start.artifact
    was, is_ = (
        _meaning(_calendar(artifact.schema), artifact.schema),
        _meaning(panel.calendar, panel.schema),
    )
    start.say(carry(_network(artifact), network, was, is_))
    if config.fit.freeze_encoder:
        freeze_encoder(network)
    if config.fit.adapters is not None:
        adapt(network, config.fit.adapters)


def seen_until(end: int, schema: Schema, start: Artifact | None) -> int:
    """Returns the time of the last target that weights have seen, those of the start included.

    Args:
        end: of the table's own targets.
        schema: of the table.
        start: None = there is none.
    """
    if start is None or not comparable(schema, start.schema):
        return end
    return max(end, start.trained_until)


def comparable(one: Schema, other: Schema) -> bool:
    """Whether times of two tables are on one clock: both dates, both whole numbers, or both rows."""
    return _clock(one) == _clock(other)


def ancestry(start: Artifact) -> dict[str, Any]:
    """Returns what an artifact's children keep of it."""
    return {
        "data": start.data,
        "fingerprint": start.fingerprint,
        "freq": start.schema.freq,
        "trained_until": start.trained_until,
        "until": _calendar(start.schema).text(start.trained_until),
        "parent": start.parent,
    }


def _network(artifact: Artifact) -> Network:
    (network,) = artifact.ensemble.members
    assert isinstance(network, Network)
    return network


def _calendar(schema: Schema) -> Calendar:
    integer = _clock(schema) != "dates"
    return Calendar(schema.freq, schema.time_zone, integer, schema.season_length, schema.periods)


def _clock(schema: Schema) -> str:
    if schema.time is None:
        return "rows"
    return "whole numbers" if schema.time_dtype == "integer" else "dates"


def _meaning(calendar: Calendar, schema: Schema) -> Meaning:
    # A day is a day; so many steps are as long as a step is.
    own = {name: f"{name} of {calendar.freq}" for name in calendar.cycles if name.endswith("steps")}
    return Meaning(
        numbers={kind: getattr(schema, f"{kind}_numeric") for kind in KINDS},
        categories={kind: getattr(schema, f"{kind}_category") for kind in KINDS},
        words=schema.categories,
        channels=schema.target,
        cycles=tuple(own.get(name, name) for name in calendar.cycles),
    )


def _role(schema: Schema, name: str) -> str:
    for kind in KINDS:
        for what, word in (("numeric", "number"), ("category", "category")):
            if name in getattr(schema, f"{kind}_{what}"):
                return f"a {kind} {word}"
    return "a target" if name in schema.target else "none"


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)

"""A fit that starts from another artifact's weights: what must agree, and what is carried over.

What cannot agree is refused before training, all faults at once. `seen_until` keeps the last time that
the earlier weights have seen, so that no backtest scores it.
"""

from __future__ import annotations

import json
from dataclasses import replace

from forecaster.config import Config, FitConfig, ModelConfig, Plan, TrackingConfig
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.embedding import Shape
from forecaster.model.network import Network
from forecaster.model.size import blueprint
from forecaster.model.transfer import KINDS, Meaning, Part, adapt, carry, check_weights, freeze_encoder
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema, comparable

_FREE = ("dropout", "context_length")
"""Settings that do not shape weights: a config may have its own."""
_SOLVED = ("lookbacks", "linear_units", "ridge_alpha")
"""Settings of the linear expert, which is solved for each table."""


def started_config(config: Config, start: Artifact | None) -> Config:
    """Returns the config with the network of an artifact; explicit settings must agree with it.

    Raises:
        ConfigError: settings contradict the artifact's, or need an artifact and there is none.
    """
    fit = config.fit
    if start is None:
        for name, value in {"freeze_encoder": fit.freeze_encoder, "adapters": fit.adapters}.items():
            if value:
                raise ConfigError(
                    f"fit.{name} {_text(value)}: only trained weights can be kept; give some "
                    f"with --from MODEL, or set it to {'false' if value is True else 'null'}"
                )
        return config
    if len(start.ensemble.members) > 1:
        raise ConfigError(
            f"--from: the artifact has {len(start.ensemble.members)} members, one network is wanted: "
            "start from an artifact of one"
        )
    own, theirs, usual = config.model, start.plan.as_config(TrackingConfig()).model, ModelConfig()
    model, faults = {}, []
    for name in ModelConfig.model_fields:
        wanted, found = getattr(own, name), getattr(theirs, name)
        # A pool may have any experts, but a head that corrects experts needs some.
        if name in _SOLVED or (name == "experts" and found and wanted != ()):
            model[name] = wanted
            continue
        asked_for = wanted != getattr(usual, name)
        model[name] = wanted if asked_for and name in _FREE else found
        if asked_for and wanted != found and name not in _FREE:
            faults.append(
                f"--from: model.{name} {_text(wanted)} is asked for, the artifact's weights are made "
                f"for {_text(found)}; leave it out to take theirs"
            )
    if own.context_length is None:
        # The window of the artifact's inputs stays as long as it was, and with it their scale.
        model["context_length"] = theirs.context_length
        model["lookbacks"] = own.lookbacks or theirs.lookbacks
    width, feed_forward = start.plan.model.width, start.plan.model.feed_forward
    smallest = min(width, feed_forward)
    if fit.adapters is not None and fit.adapters >= smallest:
        faults.append(
            f"fit.adapters {fit.adapters}: a change of low rank has fewer than the {smallest} of the "
            f"artifact's smallest matrix (width {width}, feed_forward {feed_forward})"
        )
    if faults:
        raise ConfigError("\n".join(faults))
    return config.replaced(model=model, horizon=config.horizon or start.horizon)


def requested(config: Config, plan: Plan, start: Artifact | None) -> Config:
    """Returns a request as an artifact keeps it: with the network of its start, without tracking.

    The number of steps that a time budget lowered stays so: it depends on the machine, not on the rows.
    """
    usual = ModelConfig()
    model = {} if start is None else start.requested.model.model_dump()
    model |= {name: value for name, value in config.model if value != getattr(usual, name)}
    bounded = None not in (config.fit.budget_seconds, config.fit.steps) and plan.fit.steps
    fit = FitConfig(**plan.fit.model_dump(exclude={"by_evidence"})) if bounded else config.fit
    update = {"model": ModelConfig(**model), "fit": fit, "tracking": TrackingConfig()}
    return config.model_copy(update=update)


def check_start(panel: Panel, plan: Plan, start: Artifact) -> None:
    """Raises where an artifact's weights do not fit a table and a plan.

    Raises:
        ConfigError: covariates are missing, or weights differ in shape.
    """
    _check_covariates(panel.schema, start)
    wanted = blueprint(plan.model, started_shape(panel, plan.horizon, start))
    assert isinstance(wanted, Network)
    check_weights(start.ensemble.networks[0], wanted)


def _check_covariates(schema: Schema, start: Artifact) -> None:
    own = dict.fromkeys(schema.target, "a target") | _covariates(schema)
    faults = [
        f"'{name}' (expected {role}, found {own.get(name, 'none')})"
        for name, role in _covariates(start.schema).items()
        if own.get(name) != role
    ]
    if faults:
        has = [name for kind in KINDS for name in getattr(schema, kind)]
        raise ConfigError(
            f"--from: the artifact was fitted with covariates that this table does not give: "
            f"{', '.join(faults)}; this table's covariates are {', '.join(has) or 'none'}. Add or "
            "declare them (further ones are welcome), or start from an artifact without them"
        )


def with_words_of(panel: Panel, start: Artifact) -> Panel:
    """Returns the panel recoded: the artifact's categories first, then new ones."""
    known = start.schema.categories
    both = {
        name: tuple(dict.fromkeys((*known.get(name, ()), *words)))
        for name, words in panel.schema.categories.items()
    }
    return recoded(panel, both)


def started_shape(panel: Panel, horizon: int, start: Artifact | None) -> Shape:
    """Returns the shape of a network; irregular rows in the artifact stay irregular."""
    shape = shape_of(panel, horizon)
    irregular = start is not None and not start.shape.regular
    return replace(shape, regular=False) if irregular else shape


def take_weights(
    network: Network, panel: Panel, plan: Plan, start: Artifact, source: Network
) -> list[Part]:
    """Puts an artifact's weights into a network; freezes the encoder and adds adapters as planned.

    Returns what was carried over.

    Args:
        network: with the scales of the panel's training rows.
        panel: recoded by `with_words_of`.
        plan: of the fit.
        start: the artifact.
        source: its network whose weights are taken.

    Raises:
        ConfigError: weights do not fit.
    """
    was, is_ = map(_meaning, (start.schema, panel.schema))
    parts = carry(source, network, was, is_)
    if plan.fit.freeze_encoder:
        freeze_encoder(network)
    if plan.fit.adapters is not None:
        adapt(network, plan.fit.adapters)
    return parts


def seen_until(end: int, schema: Schema, start: Artifact | None) -> int:
    """Returns the time of the last target that the weights have seen, those of the start included."""
    if start is None or not comparable(schema, start.schema):
        return end
    return max(end, start.trained_until)


def _meaning(schema: Schema) -> Meaning:
    # A day is the same everywhere; a cycle of n steps depends on the step.
    cycles = schema.calendar.cycles
    own = {name: f"{name} of {schema.freq}" for name in cycles if name.endswith("steps")}
    return Meaning(
        numbers={kind: getattr(schema, f"{kind}_numeric") for kind in KINDS},
        categories={kind: getattr(schema, f"{kind}_category") for kind in KINDS},
        words=schema.categories,
        channels=schema.target,
        cycles=tuple(own.get(name, name) for name in cycles),
    )


def _covariates(schema: Schema) -> dict[str, str]:
    return {
        name: f"a {kind} {word}"
        for kind in KINDS
        for what, word in (("numeric", "number"), ("category", "category"))
        for name in getattr(schema, f"{kind}_{what}")
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""Explains one forecast: attention over experts and over time, rollout, and importance by masking.

Where the network has no part in the forecast, there is no attention over time to show. The forecast shown
is the one that `predict` gives. Importance hides one covariate, channel, calendar cycle or block of the
context at a time and measures how far the forecast moves.

Axes: L context · H horizon · M context token · N horizon token · A head · V variant · C channel ·
Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.arguments import SeriesName, typed
from forecaster.config import ModelPlan
from forecaster.errors import DataError, nearest
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.card import network_line
from forecaster.forecast.effect_report import EffectReport, effect_report
from forecaster.forecast.expert_weights import ExpertWeights, expert_weights, network_shares
from forecaster.forecast.forecast import COLD, Forecast
from forecaster.forecast.paths import path_keys
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.window import resolve_window
from forecaster.forecast.writer import write_drawing
from forecaster.lazy import Figure
from forecaster.model.ensemble import Ensemble
from forecaster.model.hardware import spare_threads
from forecaster.model.heads import pinball
from forecaster.model.network import Network
from forecaster.model.recording import AttentionWeights, record_attention
from forecaster.panel.arrays import Bools, Floats, Ints
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.windows.batch import Batch, Inputs
from forecaster.windows.store import WindowStore

_STILL = "nothing that can be hidden changes the forecast"
_BLOCKS = 16  # of the context at most: what a reader can tell apart


@dataclass(frozen=True)
class Token:
    """The steps of one token, counted from the oldest of the context."""

    start: int
    stop: int
    """The step after the last."""
    seen: bool
    """Whether other tokens attend to it: it holds an observation, or lies in the horizon."""


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one layer."""

    part: str
    """encoder, encoder channels, decoder, decoder channels or cross."""
    layer: int
    """From 1."""
    kind: str
    """full, local, sparse or low_rank."""
    weights: NDArray[np.float32]
    """[A, query, key]; across channels the mean over tokens."""
    names: tuple[str, ...] | None = None
    """Of queries and keys across channels; None where they are tokens."""

    @property
    def heads(self) -> list[tuple[str, NDArray[np.float32]]]:
        """Name and weights [query, key] of the mean of heads, then of each head."""
        if len(self.weights) == 1:
            return [("the head", self.weights[0])]
        each = [(f"head {n}", weights) for n, weights in enumerate(self.weights, start=1)]
        return [("mean of heads", self.weights.mean(axis=0)), *each]


@dataclass(frozen=True)
class Importance:
    """How far the forecast moves without one thing, in standard deviations of the context."""

    name: str
    """Of the covariate, cycle or channel; or the steps of the context, counted from the oldest."""
    kind: str
    """known, past, static, calendar, channel or context."""
    change: float
    """Mean absolute change of the median over the horizon."""
    loss: float | None
    """Increase of the pinball loss; None where no truth is known."""
    cells: tuple[int, int] | None = None
    """First step and the one after the last, for a block of the context."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Attention and importance behind the forecast of one channel of one series."""

    forecast: Forecast
    """Of this series alone, with the truth where it is known."""
    channel: int
    """Number of the channel."""
    time: Ints
    """[L + H] times of the steps."""
    history: Floats
    """[L] the context, data units; NaN = missing."""
    context: tuple[Token, ...]
    """[M]; none where the network has weight 0."""
    horizon: tuple[Token, ...]
    """[N]; likewise."""
    maps: tuple[AttentionMap, ...]
    """Of the network, layer by layer; likewise."""
    rollout: Floats | None
    """[N, M + N] shares of all tokens in those of the horizon; None without maps, and for low-rank
    attention."""
    importance: tuple[Importance, ...]
    """Of covariates, channels and cycles, the largest first; then of the context, the oldest first."""
    effects: EffectReport
    """Of known covariates and of the calendar."""
    model: ModelPlan
    """Settings of the network."""
    network: str = ""
    """Mean weights of experts and network where the model was fitted, in words; empty without experts."""
    experts: ExpertWeights | None = None
    """Attention over experts; None without experts."""
    without_maps: str = ""
    """Why there are no attention maps; empty where there are."""

    def __repr__(self) -> str:
        return f"Explanation({self.report})"

    @property
    def title(self) -> str:
        """Series and channel."""
        panel = self.forecast.panel
        return " · ".join((panel.series_names[0], panel.schema.target[self.channel]))

    @property
    def report(self) -> str:
        """The three things that matter most, in a line."""
        moving = (one for one in self.importance if one.change > 0)
        largest = sorted(moving, key=lambda one: -one.change)[:3]
        listed = ", ".join(f"{self.name(one)} ({one.change:.3f})" for one in largest)
        said = f"the forecast changes most without {listed}" if listed else _STILL
        return f"{self.title}: {said}"

    def name(self, one: Importance) -> str:
        """Returns the name of a covariate, or the dates of a block of the context."""
        return one.name if one.cells is None else self.span(*one.cells)

    def span(self, start: int, stop: int) -> str:
        """Returns the times of steps, from the first to the one before `stop`."""
        text = self.forecast.panel.calendar.text
        first, last = text(int(self.time[start])), text(int(self.time[stop - 1]))
        return first if first == last else f"{first} – {last}"

    def plot(self) -> Figure:
        """Returns a figure: forecast, weights of experts, importance, rollout, attention of each layer."""
        from forecaster.forecast.explain_page import plot_explanation

        return plot_explanation(self)

    @typed
    def write(self, path: str | Path) -> None:
        """Writes a page (.html) that needs no other file, or a picture, whole or not at all.

        Raises:
            OutputError: the suffix is neither, or the file cannot be written.
        """
        from forecaster.forecast.explain_page import explanation_page

        write_drawing(Path(path), self.plot, lambda: explanation_page(self))


def explain(
    artifact: Artifact, panel: Panel, only: SeriesName | None, channel: str | None, cutoff: str
) -> Explanation:
    """Returns attention and importance behind one forecast; see `Forecaster.explain`.

    Of an ensemble, attention over time is that of the member whose network has the largest weight.

    Raises:
        DataError: there is no such series or channel, or nothing can be forecast.
    """
    number = panel.one_series(only)
    alone = panel.between(number, number + 1)
    place = _channel(alone, channel)
    forecast = Predictor(artifact).predict(alone, resolve_window(artifact, alone, cutoff))
    if not (status := forecast.status[place]).startswith("ok"):
        status = "no target observed before the cutoff" if status == COLD else status
        raise DataError(f"{panel.name}: series {alone.series_names[0]}: {status}")
    batch, raw, time = _window(artifact, forecast)
    truth = raw.target.numpy()
    if np.isfinite(truth[..., place]).any():
        forecast = replace(forecast, actual=truth)
    ensemble, model = artifact.ensemble, artifact.plan.model
    with torch.inference_mode(), spare_threads():
        shares = network_shares(ensemble, batch.inputs, place)
        network = ensemble.networks[int(np.argmax(shares))]
        reason = (
            "" if any(shares) else _without_maps(artifact, bool(network.brief(batch.inputs)[0, place]))
        )
        recorded: list[AttentionWeights] = []
        if not reason:
            # An autoregressive decoder reads its own values: here the median of all paths.
            own = torch.from_numpy(forecast.median) if model.decoder == "autoregressive" else None
            recorded = record_attention(network, batch.inputs, own)
        together = model.channel_attention or bool({*model.pool.drivers} & {*panel.schema.target})
        channel_hidden = place if together else None
        variants = hide_each(batch.inputs, panel, channel_hidden, network.config.patch)
        variants = _without_effects(variants, artifact, forecast)
        key = torch.from_numpy(path_keys(alone, forecast.series, forecast.cutoff, seed=0))
        importance = importance_of(ensemble, batch.inputs, variants, place, raw, key)
        # Experts read cycles off the history: what hiding those of the calendar leaves the same is unknown.
        importance = tuple(
            one for one in importance if one.change or one.kind != "calendar" or not reason
        )
        experts = expert_weights(ensemble, batch.inputs, forecast, place)
    maps = tuple(_map(one, model, panel.schema, place) for one in recorded)
    parts = [[one.weights for one in maps if one.part == p] for p in ("encoder", "decoder", "cross")]
    observed = batch.inputs.observed[0, :, place].numpy()
    return Explanation(
        forecast=forecast,
        channel=place,
        time=time,
        history=raw.inputs.context[0, :, place].numpy(),
        context=() if reason else _context_tokens(network, observed),
        horizon=() if reason else _horizon_tokens(network, len(time)),
        maps=maps,
        rollout=None if reason or any(one.kind == "low_rank" for one in maps) else rollout(*parts),
        # Covariates by importance, then the blocks of the context by time.
        importance=tuple(sorted(importance, key=lambda one: one.cells or (-1, -one.change))),
        effects=effect_report(artifact.effects, forecast.panel, place),
        model=model,
        network=network_line(artifact),
        experts=experts,
        without_maps=reason,
    )


def _without_maps(artifact: Artifact, brief: bool) -> str:
    """Returns why the network has no part in a forecast."""
    if artifact.metrics.get("expert_weights") == {}:
        cause = "nothing was fitted"
    elif brief:
        cause = "the history is at most a season"
    else:
        cause = "by validation windows, or for want of them"
    return f"The network has weight 0 in this forecast ({cause}): there are no attention maps over time"


def _channel(panel: Panel, name: str | None) -> int:
    """The number of a channel of the only series, or of its first."""
    target = [one for one, there in zip(panel.schema.target, panel.present[0], strict=True) if there]
    if name is None or name in target:
        return panel.schema.target.index(name or target[0])
    near = nearest(name, target)
    hint = f"did you mean '{near}'?" if near else f"expected one of {', '.join(target[:5])}"
    raise DataError(f"{panel.name}: no channel '{name}' among {len(target)}; {hint}")


def _window(artifact: Artifact, forecast: Forecast) -> tuple[Batch, Batch, Ints]:
    """Returns the window of a forecast as effects leave it and as it is, and the times of its steps."""
    panel = forecast.panel.reaching(forecast.cutoff, artifact.horizon)
    length = artifact.context_length
    cutoff = panel.row_at(forecast.cutoff)
    batch, raw = (
        WindowStore(panel, artifact.plan.model, artifact.horizon, effects).batch(
            forecast.series, None, cutoff
        )
        for effects in (artifact.effects, None)
    )
    past = panel.time[max(0, int(cutoff[0]) - length + 1) : int(cutoff[0]) + 1]
    padded = panel.calendar.before(int(past[0]), length - len(past))
    return batch, raw, np.concatenate([padded, past, forecast.time[0]])


def _without_effects(
    variants: Sequence[Variant], artifact: Artifact, forecast: Forecast
) -> list[Variant]:
    """Returns variants in which the effect of a covariate that is hidden is not put back."""
    effects = artifact.effects
    if effects is None or not effects.declared:
        return [*variants]
    panel = forecast.panel.reaching(forecast.cutoff, artifact.horizon)
    first = int(panel.row_at(forecast.cutoff)[0]) + 1
    leads = slice(first, first + artifact.horizon)
    found = []
    for one in variants:
        if one.kind in ("known", "past"):
            effect = torch.from_numpy(effects.of(panel, without=one.name)[leads])
            one = replace(one, inputs=replace(one.inputs, effect=effect[None]))
        found.append(one)
    return found


def _context_tokens(network: Network, observed: Bools) -> tuple[Token, ...]:
    length, patch, count = len(observed), network.config.patch, network.embedding.context_tokens
    first = length - network.embedding.attention_length
    stops = range(length - patch * (count - 1), length + 1, patch)
    spans = [(max(first, stop - patch), stop) for stop in stops]
    return tuple(Token(start, stop, bool(observed[start:stop].any())) for start, stop in spans)


def _horizon_tokens(network: Network, steps: int) -> tuple[Token, ...]:
    starts = range(network.config.context_length, steps, network.config.decoder_patch)
    return tuple(
        Token(start, min(start + network.config.decoder_patch, steps), True) for start in starts
    )


def _map(recorded: AttentionWeights, model: ModelPlan, schema: Schema, channel: int) -> AttentionMap:
    part, layer, weights = recorded.part, recorded.layer, recorded.weights
    if not part.endswith(" channels"):
        kind = model.attention if part == "encoder" else "full"
        return AttentionMap(part, layer, kind, weights[channel].numpy())
    known = schema.known_numeric + schema.known_category
    past = schema.past_numeric + schema.past_category if part == "encoder channels" else ()
    return AttentionMap(part, layer, "full", weights.mean(dim=0).numpy(), schema.target + known + past)


def rollout(
    encoder: Sequence[NDArray[np.floating]],
    decoder: Sequence[NDArray[np.floating]],
    cross: Sequence[NDArray[np.floating]],
) -> Floats:
    """Returns [N, M + N] shares of context and horizon tokens in the decoder's output; rows sum to 1.

    Heads are averaged, the residual connection counts half, layers are multiplied (Abnar and Zuidema,
    "Quantifying attention flow in transformers", 2020, section 3). Encoder and decoder are one stack
    over the tokens of the context followed by those of the horizon.

    Args:
        encoder: [A, M, M] self-attention per layer, bottom first.
        decoder: [A, N, N] self-attention.
        cross: [A, N, M] cross-attention.
    """
    context, horizon = encoder[0].shape[-1], decoder[0].shape[-1]
    memory: Floats = np.eye(context, context + horizon)
    for weights in encoder:
        memory = _with_residual(weights, np.eye(context)) @ memory
    own = np.eye(horizon)
    tokens: Floats = np.eye(horizon, context + horizon, k=context)
    for among, across in zip(decoder, cross, strict=True):
        tokens = _with_residual(among, own) @ tokens
        taken = np.concatenate([across, np.zeros((len(across), horizon, horizon))], axis=-1)
        mixed = _with_residual(taken, np.eye(horizon, context + horizon, k=context))
        tokens = mixed[:, :context] @ memory + mixed[:, context:] @ tokens
    return tokens


def _with_residual(weights: NDArray[np.floating], residual: Floats) -> Floats:
    """Averages heads, adds the residual as one half; a token that attends to nothing stays itself."""
    mixed = 0.5 * weights.mean(axis=0, dtype=np.float64) + 0.5 * residual
    return mixed / mixed.sum(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Variant:
    """A window with one thing hidden."""

    name: str
    kind: str
    inputs: Inputs
    cells: tuple[int, int] | None = None


def hide_each(inputs: Inputs, panel: Panel, channel: int | None, patch: int) -> list[Variant]:
    """Returns a window once without each covariate, and once without each block of its context.

    Args:
        inputs: one window.
        panel: for the names of covariates, cycles and channels.
        channel: the forecast channel where channels read each other (the others are hidden in turn);
            else None.
        patch: steps per token; blocks are whole tokens, of a single one its steps.
    """
    schema = panel.schema
    columns = {  # names of the columns of each field of `Inputs`, and their kind
        "known": (schema.known_numeric, "known"),
        "known_category": (schema.known_category, "known"),
        "past": (schema.past_numeric, "past"),
        "past_category": (schema.past_category, "past"),
        "static": (schema.static_numeric, "static"),
        "static_category": (schema.static_category, "static"),
        "phase": (panel.calendar.cycles, "calendar"),
        "context": (() if channel is None else schema.target, "channel"),
    }
    drivers = schema.columns[len(schema.columns) - inputs.drivers.shape[2] :]
    variants = [
        Variant(
            name, kind, _without(inputs, part, place, drivers.index(name) if name in drivers else None)
        )
        for part, (names, kind) in columns.items()
        for place, name in enumerate(names)
        if part != "context" or place != channel
    ]
    return [*variants, *_without_blocks(inputs, patch)]


def _without(inputs: Inputs, part: str, column: int, driver: int | None) -> Inputs:
    """Returns inputs with one column of a field missing; of the context in the history, and as a driver."""
    hidden = {}
    for name in ("context", "history") if part == "context" else (part,):
        values = getattr(inputs, name).clone()
        values[..., column] = 0 if name.endswith("_category") else torch.nan
        hidden[name] = values
        mask = "observed" if name == "context" else f"{name}_observed"
        if hasattr(inputs, mask):
            hidden[mask] = ~values.isnan()
    if driver is not None:
        hidden["drivers"] = inputs.drivers.clone()
        hidden["drivers"][..., driver] = torch.nan
    return replace(inputs, **hidden)


def importance_of(
    ensemble: Ensemble,
    inputs: Inputs,
    variants: Sequence[Variant],
    channel: int,
    raw: Batch,
    key: Tensor,
) -> tuple[Importance, ...]:
    """Returns the importance of what each variant hides, in the order given.

    Args:
        ensemble: makes the forecasts, all in one batch.
        inputs: the window with nothing hidden.
        variants: the same with one thing hidden in each.
        channel: whose forecast is compared.
        raw: the window before effects were taken out, with the truth; NaN = unknown.
        key: [1] of sample paths, the same in all variants.
    """
    windows = [inputs, *(one.inputs for one in variants)]
    batch = Inputs(*(torch.cat([getattr(w, f.name) for w in windows]) for f in fields(Inputs)))
    scale = ensemble.scale(raw.inputs).scale[0, channel]
    quantiles = ensemble(batch, key.expand(len(windows)))[:, :, channel] / scale  # [V, H, Q]
    median = quantiles[..., ensemble.levels.index(0.5)]
    change = (median - median[:1]).abs().mean(dim=1).tolist()
    truth = raw.target[0, :, channel] / scale
    known = ~truth.isnan()
    rise: list[float | None] = [None] * len(windows)
    if known.any():
        levels = torch.tensor(ensemble.levels)
        expected = truth[known].expand(len(windows), -1)
        loss = pinball(quantiles[:, known], expected, levels).mean(dim=1)
        rise = (loss - loss[0]).tolist()
    return tuple(
        Importance(one.name, one.kind, change[n], rise[n], one.cells)
        for n, one in enumerate(variants, start=1)
    )


def _without_blocks(inputs: Inputs, patch: int) -> Iterator[Variant]:
    """Hides targets and past covariates of one block of the context after the other."""
    length = inputs.context.shape[1]
    if patch >= length:  # one token: its steps, for without it nothing would be left
        patch = 1
    size = patch * -(-length // (patch * _BLOCKS))
    for stop in range(length - size * ((length - 1) // size), length + 1, size):
        start = max(0, stop - size)
        step = torch.zeros(length, dtype=torch.bool)
        step[start:stop] = True
        rest = inputs.without(step[None])
        # A block that was never observed hides nothing; one that holds all leaves nothing to forecast.
        if rest.observed.any() and not torch.equal(rest.observed, inputs.observed):
            yield Variant(f"{start}-{stop - 1}", "context", rest, (start, stop))

"""What one forecast looked at: attention over real time, rollout, and what each thing told is worth.

What comes in: a saved model, a table, the name of a series. What goes out: an `Explanation`, which
writes itself as a page or a picture. Promised: the forecast shown is the one that `predict` gives.

Axes: L context · H horizon · M context token · N horizon token · A head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import ModelConfig
from forecaster.errors import DataError, nearest
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.card import attention_line
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.importance import Importance, importance_of, without_each
from forecaster.forecast.paths import path_keys
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.rollout import rollout
from forecaster.forecast.writer import check_page, is_page, write_figure, write_page
from forecaster.model.network import Network
from forecaster.model.recording import AttentionWeights, record_attention
from forecaster.model.threads import spare_threads
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.windows.batch import Batch
from forecaster.windows.store import WindowStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Token:
    """The steps that one token holds, counted from the oldest of the context."""

    start: int
    stop: int
    """The step after the last."""
    seen: bool
    """Whether others may look at it: it holds an observation, or lies in the horizon."""


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention."""

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


@dataclass(frozen=True, repr=False)
class Explanation:
    """What the forecast of one channel of one series looked at."""

    forecast: Forecast
    """Of this series alone, with the truth where it is known."""
    channel: int
    """Number of the channel."""
    time: NDArray[np.int64]
    """[L + H] times of the steps."""
    history: NDArray[np.float32]
    """[L] the context, data units; NaN = missing."""
    context: tuple[Token, ...]
    """[M]"""
    horizon: tuple[Token, ...]
    """[N]"""
    maps: tuple[AttentionMap, ...]
    """In the order of work."""
    rollout: NDArray[np.float64] | None
    """[N, M + N] shares of all tokens in the horizon's; None where weights are no shares (low_rank)."""
    importance: tuple[Importance, ...]
    """Of covariates, channels and cycles, the largest first; then of the context, the oldest first."""
    model: ModelConfig
    """How the network is made."""
    attention: str = ""
    """What attention adds to the linear forecast, in words; empty where there is none."""

    def __repr__(self) -> str:
        return f"Explanation({self.report})"

    @property
    def title(self) -> str:
        """Series and channel."""
        panel = self.forecast.panel
        return " · ".join((panel.labels[0], panel.schema.target[self.channel]))

    @property
    def report(self) -> str:
        """What matters most, in a line."""
        found = sorted(self.importance, key=lambda one: -one.change)[:3]
        said = [f"{self.name(one)} ({one.change:.3f})" for one in found]
        return f"{self.title}: the forecast moves most without {', '.join(said) or 'nothing'}"

    def name(self, one: Importance) -> str:
        """Returns a name for people: covariates by theirs, blocks of the context by their dates."""
        return one.name if one.cells is None else self.span(*one.cells)

    def span(self, start: int, stop: int) -> str:
        """Returns the times of steps, from the first to the one before `stop`."""
        text = self.forecast.panel.calendar.text
        first, last = text(int(self.time[start])), text(int(self.time[stop - 1]))
        return first if first == last else f"{first} – {last}"

    def plot(self) -> Figure:
        """Returns a figure: forecast, rollout, importance, and each layer's attention."""
        from forecaster.forecast.explain_plots import plot_explanation

        return plot_explanation(self)

    def write(self, path: str | Path) -> None:
        """Writes a page (.html) that needs no other file, or a picture, whole or not at all.

        Raises:
            OutputError: the suffix is neither, or the file cannot be written.
        """
        from forecaster.forecast.explain_page import page_of

        file = Path(path)
        check_page(file)
        if is_page(file):
            write_page(page_of(self), file)
        else:
            write_figure(self.plot(), file)


def explain(
    artifact: Artifact, panel: Panel, series: str | None, channel: str | None, cutoff: str
) -> Explanation:
    """Returns what one forecast looked at.

    Args:
        artifact: the model; of several members the weightiest is looked into.
        panel: opened with the artifact's schema.
        series: label of the series; None where there is but one.
        channel: name of the channel; None = the first.
        cutoff: "own", "last" or a date, as in `Predictor.predict`.

    Raises:
        DataError: there is no such series or channel, or nothing can be forecast.
    """
    place = panel.schema.target.index(_channel(panel, channel))
    alone = panel.between(number := _series(panel, series), number + 1)
    forecast = Predictor(artifact).predict(alone, cutoff)
    if forecast.status[0] != "ok":
        raise DataError(f"{panel.name}: series {alone.labels[0]}: {forecast.status[0]}")
    batch, time = _window(artifact, forecast)
    truth = batch.target.numpy()
    if np.isfinite(truth[..., place]).any():
        forecast = replace(forecast, actual=truth)
    ensemble, config = artifact.ensemble, artifact.config.model
    heaviest = int(np.argmax(ensemble.weights))
    network = ensemble.members[heaviest]
    assert isinstance(network, Network)
    follows = config.decoder == "autoregressive"
    with torch.inference_mode(), spare_threads():
        median = torch.from_numpy(forecast.median) if follows else None
        looks = record_attention(network, batch.inputs, median)
        others = place if config.channel_attention else None
        hidden = without_each(batch.inputs, panel, others, network.config.patch)
        key = torch.from_numpy(path_keys(alone, forecast.series, forecast.cutoff, seed=0))
        importance = importance_of(ensemble, batch.inputs, hidden, place, batch.target, key)
    maps = tuple(_map(look, config, panel.schema, place) for look in looks)
    return Explanation(
        forecast=forecast,
        channel=place,
        time=time,
        history=batch.inputs.context[0, :, place].numpy(),
        context=_context_tokens(network, batch.inputs.observed[0, :, place].numpy()),
        horizon=_horizon_tokens(network, len(time)),
        maps=maps,
        rollout=None if any(one.kind == "low_rank" for one in maps) else _rollout(maps),
        importance=tuple(sorted(importance, key=_order)),
        model=config,
        attention=attention_line(artifact),
    )


def _series(panel: Panel, name: str | None) -> int:
    if name is not None:
        return panel.series_named(name)
    if panel.n_series == 1:
        return 0
    raise DataError(f"{panel.name}: {panel.n_series} series; name one, as --series '{panel.labels[0]}'")


def _channel(panel: Panel, name: str | None) -> str:
    target = panel.schema.target
    if name is None or name in target:
        return target[0] if name is None else name
    near = nearest(name, target)
    hint = f"did you mean '{near}'?" if near else f"expected one of {', '.join(target[:5])}"
    raise DataError(f"{panel.name}: no channel '{name}' among {len(target)}; {hint}")


def _window(artifact: Artifact, forecast: Forecast) -> tuple[Batch, NDArray[np.int64]]:
    """Returns the window a forecast was made from, with what followed, and the times of its steps."""
    panel = forecast.panel.reaching(forecast.cutoff, artifact.horizon)
    length = artifact.context_length
    codes = np.arange(1, panel.n_channels + 1)
    at = panel.row_at(forecast.cutoff)
    store = WindowStore(panel, length, artifact.horizon, codes)
    batch = store.batch(forecast.series, None, at)
    past = panel.time[max(0, int(at[0]) - length + 1) : int(at[0]) + 1]
    padded = panel.calendar.before(int(past[0]), length - len(past))
    return batch, np.concatenate([padded, past, forecast.time[0]])


def _context_tokens(network: Network, observed: NDArray[np.bool_]) -> tuple[Token, ...]:
    length, patch = len(observed), network.config.patch
    first, count = length - network.config.attention_length, network.embedding.context_tokens
    stops = range(length - patch * (count - 1), length + 1, patch)
    spans = [(max(first, stop - patch), stop) for stop in stops]
    return tuple(Token(start, stop, bool(observed[start:stop].any())) for start, stop in spans)


def _horizon_tokens(network: Network, steps: int) -> tuple[Token, ...]:
    starts = range(network.config.context_length, steps, network.config.decoder_patch)
    return tuple(
        Token(start, min(start + network.config.decoder_patch, steps), True) for start in starts
    )


def _map(look: AttentionWeights, config: ModelConfig, schema: Schema, channel: int) -> AttentionMap:
    part = look.part.removesuffix(" channels")
    if part == look.part:
        kind: str = config.attention if part == "encoder" else "full"
        return AttentionMap(part, look.layer, kind, look.weights[channel].numpy())
    known = schema.known_numeric + schema.known_category
    past = schema.past_numeric + schema.past_category if part == "encoder" else ()
    mean = look.weights.mean(dim=0).numpy()
    return AttentionMap(look.part, look.layer, "full", mean, schema.target + known + past)


def _rollout(maps: tuple[AttentionMap, ...]) -> NDArray[np.float64]:
    parts = [[one.weights for one in maps if one.part == part] for part in _PARTS]
    return rollout(*parts)


def _order(one: Importance) -> tuple[bool, float]:
    """Covariates first, the most important on top; then the context in its own order."""
    return one.cells is not None, one.cells[0] if one.cells else -one.change

"""Rows that attention over experts learns from: evidence at cutoffs of a table, and what followed.

    table ─▶ experts solved ─▶ training windows, some with a short history ─▶ evidence, truth at its positions

Windows are forecast by maps solved without their block of time, as those of a fit. Evidence is stored as it
is; features follow from it when a batch is drawn, so that experts can be left out of a row at random.

Axes: R row · E expert · P position of a lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.errors import ForecasterError
from forecaster.fitting.experts.drivers import solve_arx
from forecaster.fitting.experts.pool import bare_network, learn_traits, smallest
from forecaster.fitting.experts.ridge import solve_linear
from forecaster.fitting.fit import resolve
from forecaster.fitting.pretrain.corpus import RealSeries
from forecaster.model.evidence import Evidence, positions
from forecaster.model.expert_attention import METHODS
from forecaster.model.experts import truncated
from forecaster.panel.build import open_panel
from forecaster.panel.categories import with_categories
from forecaster.panel.frames import frame_of
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Inputs
from forecaster.windows.index import even_draw
from forecaster.windows.store import training_store
from forecaster.windows.streams import WindowSequence

SHORT = 0.28
"""Share of the rows whose history is cut short."""
_LEAST_STEPS = 2  # of such a history
_BATCH = 256


@dataclass(frozen=True)
class Clock:
    """The step of a table, the seasons it has, and how far ahead it is forecast."""

    step: str
    season: int
    second: int
    horizons: tuple[int, ...]
    long: tuple[int, ...] = ()
    """Horizons of many seasons, each of some series of a source beside those above."""


CLOCKS = {
    clock.step: clock
    for clock in (
        Clock("Y", 1, 0, (4, 6)),
        Clock("Q", 4, 0, (4, 8)),
        Clock("M", 12, 0, (6, 12, 18)),
        Clock("W", 52, 0, (4, 8, 13)),
        Clock("D", 7, 365, (7, 14, 30), (180,)),
        Clock("h", 24, 168, (24, 48), (168, 720)),
        Clock("30min", 48, 336, (48,), (336,)),
        Clock("15min", 96, 672, (48, 96), (288, 720)),
        Clock("10min", 144, 1008, (48, 144), (288, 720)),
        Clock("5min", 288, 0, (48, 288), (720,)),
    )
}
"""By step of the corpus."""


class ExpertRows(NamedTuple):
    """Evidence of rows over all experts there are, and the truth."""

    evidence: Evidence
    """Of `METHODS`, in their order."""
    truth: Tensor
    """[R, P] scaled units; NaN = missing."""

    def at(self, rows: Tensor) -> ExpertRows:
        """Returns some rows, by their numbers or a mask."""
        return ExpertRows(self.evidence.at(rows), self.truth[rows])


def joined(parts: Sequence[ExpertRows]) -> ExpertRows:
    """Returns the rows of some tables, one after the other."""
    evidence = Evidence.joined([rows.evidence for rows in parts])
    return ExpertRows(evidence, torch.cat([rows.truth for rows in parts]))


def to_tensors(rows: ExpertRows) -> dict[str, Tensor]:
    """Returns rows as named tensors, to be stored."""
    return {**rows.evidence.tensors(), "truth": rows.truth}


def from_tensors(tensors: dict[str, Tensor]) -> ExpertRows:
    """Returns stored rows."""
    return ExpertRows(
        evidence=Evidence(**{field.name: tensors[field.name] for field in fields(Evidence)}),
        truth=tensors["truth"],
    )


@torch.no_grad()
def rows_of_table(
    series: Sequence[RealSeries], clock: Clock, horizon: int, most: int, seed: int
) -> ExpertRows | None:
    """Returns at most so many rows of one table; None where no window can be cut.

    Args:
        series: of one source and step.
        clock: seasons; where all series have true dates these are read from them.
        horizon: steps.
        most: rows, an even draw of the windows.
        seed: of what is cut short.
    """
    try:
        panel, config = _panel(series, clock, horizon)
        plan, split = resolve(panel, config)
    except ForecasterError:
        return None
    plan = smallest(plan)
    panel = with_categories(panel, split.train_end)
    network, store = bare_network(panel, plan, split.train_end), training_store(panel, plan)
    experts = network.experts
    assert experts is not None
    solve_linear(network, panel, plan, split.train)
    solve_arx(network, panel, plan, split.train, store)
    learn_traits(experts, panel, split.train_end)
    random = np.random.default_rng(seed)
    leads = positions(horizon)
    columns = [METHODS.index(name) for name in experts.names]
    found = []
    for batch in WindowSequence(store, split.train, even_draw(len(split.train), most), _BATCH):
        inputs = _cut_short(batch.inputs, random)
        scale = network.scale(inputs)
        truth = scale.apply(batch.target)[:, leads, 0]
        evidence = network.pool(inputs, scale, batch.time).evidence
        rows = ExpertRows(_over_all(evidence, columns), truth)
        observed = ~truth.isnan().all(dim=1) & evidence.seen.any(dim=1)
        found.append(rows.at(observed))
    return joined(found)


def _panel(series: Sequence[RealSeries], clock: Clock, horizon: int) -> tuple[Panel, Config]:
    """The table of some series; without true dates rows are numbered, and the seasons given."""
    names = np.repeat([str(number) for number in range(len(series))], [len(s.values) for s in series])
    values = np.concatenate([one.values for one in series])
    columns: dict[str, Any] = {"series": names, "y": values}
    data: dict[str, Any] = {"series": ("series",), "target": ("y",), "past": (), "static": ()}
    dated = all(one.start is not None for one in series)
    if dated:
        columns["time"] = np.concatenate([_dates(one, clock.step) for one in series])
        data["time"] = "time"
    else:
        columns["time"] = np.concatenate([np.arange(len(one.values)) for one in series])
        data |= {"time": "time", "season_length": clock.season}
        data["periods"] = tuple(m for m in (clock.season, clock.second) if m > 1)
    config = Config(horizon=horizon, data=data, fit={"validation": None, "seed": 0})
    return open_panel(frame_of(columns), config.data), config


def _dates(series: RealSeries, step: str) -> np.ndarray:
    """The dates of a series, from its first."""
    assert series.start is not None
    count = len(series.values)
    months = {"Y": 12, "Q": 3, "M": 1}.get(step)
    start = series.start.astype("datetime64[us]")
    if months is not None:
        first = start.astype("datetime64[M]")
        return (first + months * np.arange(count)).astype("datetime64[us]")
    days = {"W": 7, "D": 1}[step]
    return start + np.arange(count) * np.timedelta64(days * 86_400_000_000, "us")


def _cut_short(inputs: Inputs, random: np.random.Generator) -> Inputs:
    """Some windows without what is further back than a number of steps, short ones as likely as long."""
    count, longest = len(inputs.channel), inputs.history.shape[1]
    low, high = np.log(_LEAST_STEPS), np.log(max(longest, _LEAST_STEPS + 1))
    steps = np.exp(random.uniform(low, high, count)).astype(np.int64)
    steps = np.where(random.random(count) < SHORT, steps, longest + inputs.context.shape[1])
    return truncated(inputs, torch.from_numpy(steps))


def _over_all(evidence: Evidence, columns: Sequence[int]) -> Evidence:
    """The evidence with a column for each of `METHODS`; those that the pool lacks are not available."""

    def spread(part: Tensor) -> Tensor:
        whole = part.new_zeros((*part.shape[:-1], len(METHODS)))
        whole[..., columns] = part
        return whole

    return replace(
        evidence,
        forecasts=spread(evidence.forecasts),
        missed=spread(evidence.missed),
        available=spread(evidence.available),
    )

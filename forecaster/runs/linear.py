"""The linear forecast beside attention: which maps a table gets, and their solution.

What comes in: a panel, a config and the windows that train. What goes out: a network that holds the
solution, or the linear forecast alone as an artifact. Promised: once `ridge/choice.py` has settled what
was left open, the maps are a function of config and training windows alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.runs.ridge.choice import (
    bare,
    bare_network,
    cycle_steps,
    settle_linear,
    strengths_of,
)
from forecaster.runs.ridge.offsets import learn_offsets
from forecaster.runs.ridge.periodic import with_periodic
from forecaster.runs.ridge.rows import FOLDS, spans
from forecaster.runs.ridge.solve import refined, solution, summed_without
from forecaster.runs.versions import versions
from forecaster.windows.index import WindowIndex
from forecaster.windows.split import Split, split_panel

_FARTHEST = 800  # steps back by default: a solution takes the cube of what a map reads
_LENGTHS = 9  # of a lookback that a table must hold before it is the default


def linear_settings(config: Config, panel: Panel, context: int) -> dict[str, object]:
    """Returns settings that follow from the table: which linear maps, and the context they need.

    Args:
        config: as asked for.
        panel: the table.
        context: steps that attention reads if nothing else is said, or the context as asked for.

    Raises:
        ConfigError: places of a cycle are asked for where there is none.
    """
    model, calendar = config.model, panel.calendar
    kind = model.linear
    if kind is None:
        kind = "blend" if model.head == "quantile" and model.decoder == "direct" else "none"
    if kind == "none":
        return {"linear": kind, "context_length": context}
    if (model.linear_phases or 1) > 1 and not calendar.cycles:
        raise ConfigError(
            f"model.linear_phases {model.linear_phases}: no calendar cycle in {panel.name} to have "
            "places of; set it to 1, or give data.periods"
        )
    lookbacks, reads = model.lookbacks, model.attention_length
    if lookbacks is None:
        lookbacks = _lookbacks(panel, context)
        if model.context_length is not None:
            lookbacks = tuple(n for n in lookbacks if n <= context) or (context,)
    if model.context_length is None:
        reads = reads or context
        context = max(*lookbacks, *(model.linear_lags or ()), reads)
    lags = model.linear_lags
    if lags is None:
        lengths = (calendar.season_length, *(cycle_steps(calendar, name) for name in calendar.cycles))
        told = bool(panel.schema.known)
        lags = tuple(sorted({n for n in lengths if 1 < n <= min(context, _FARTHEST) and told}))
    season = calendar.season_length
    return {
        "linear": kind,
        "lookbacks": lookbacks,
        "linear_lags": lags,
        "linear_units": season if model.linear_units == "season" else model.linear_units,
        "linear_period": season if model.linear_period == "season" else model.linear_period,
        "context_length": context,
        "attention_length": reads,
    }


def solve_linear(network: Network, panel: Panel, config: Config, index: WindowIndex) -> None:
    """Solves the linear maps of a network over windows.

    Args:
        network: changed in place, its scales learned; one without linear maps stays as it is.
        panel: the table.
        config: settled.
        index: the windows that train.
    """
    linear = network.linear
    if linear is None:
        return
    strengths = strengths_of(config, linear.horizon)
    maps: list[list[list[Tensor]]] = []  # [span][fold, and all][map]
    with torch.no_grad():
        every = spans(network, panel, config, index)
        for windows, sums in zip(every, summed_without(every, range(FOLDS)), strict=True):
            own = [[solution(linear, one, strengths) for one in part] for part in sums]
            own[-1] = refined(windows, sums[-1], own[-1], strengths)
            for part, fold in zip(own, sums, strict=True):
                for number, (free, one) in enumerate(zip(part, fold, strict=True)):
                    part[number] = with_periodic(linear, number, free, one, strengths).float()
            maps.append(own)
        for number, kept in enumerate(linear.maps):
            # Maps of several spans read the same features: their mean is one map.
            kept.copy_(torch.stack([own[-1][number] for own in maps]).mean(dim=0))
        learn_offsets(every, maps)


def fit_floor(panel: Panel, config: Config, split: Split) -> Artifact:
    """Returns an artifact whose forecasts are the linear ones alone.

    Args:
        panel: the table.
        config: resolved with a linear forecast; what it says of attention is left out.
        split: of the panel under this config.
    """
    fingerprint = panel.fingerprint()
    panel = with_categories(panel, split.train_end)
    config = settle_linear(panel, bare(config), split)
    if config.fit.refit:
        unwatched = config.fit.model_copy(update={"validation": None})
        split = split_panel(panel, config.model_copy(update={"fit": unwatched}))
    network = bare_network(panel, config, split)
    solve_linear(network, panel, config, split.train)
    network.network_weight.zero_()
    return Artifact(
        schema=panel.schema,
        config=config,
        shape=network.shape,
        ensemble=Ensemble([network], [1.0], target=config.target).eval().requires_grad_(False),
        trained_until=split.end,
        data=panel.name,
        fingerprint=fingerprint,
        versions=versions(),
    )


def _lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """Returns how far maps look back: a longer table has more of them, each twice the one before."""
    calendar = panel.calendar
    longest = int((panel.last_observed - panel.indptr[:-1] + 1).max())
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    found = [min(first, longest, _FARTHEST)]  # beyond the table there is nothing to read
    while len(found) < 3 and 2 * found[-1] <= min(longest // _LENGTHS, _FARTHEST):
        found.append(2 * found[-1])
    return tuple(found)

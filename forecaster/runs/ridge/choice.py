"""Which linear maps there are, and how strongly they are held, settled on validation.

What comes in: a panel, a config and a split. What goes out: a config that leaves nothing open.
Promised: nothing but training windows and watched validation windows enters a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.forecast.artifact import shape_of
from forecaster.model.experts import LinearForecast
from forecaster.model.network import Network
from forecaster.panel.calendar import Calendar
from forecaster.panel.freq import DAY
from forecaster.panel.panel import Panel
from forecaster.runs.ridge.offsets import foretold
from forecaster.runs.ridge.periodic import with_periodic
from forecaster.runs.ridge.rows import FOLDS, MOST_ROWS, spans
from forecaster.runs.ridge.solve import Sums, solution, summed_without
from forecaster.runs.scales import learn_scales
from forecaster.windows.split import Split

_STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
_JUDGES = (1, 3)  # quarters of the training windows that judge maps solved without them
_DRAWN = 1024  # training windows that judge, at most
_WORTH = 0.99  # of the error: more maps, or more features, must lower it by this much
_MOST_PLACES, _ROWS_PER_FEATURE = 168, 2
_MOST_PRODUCTS = 1 << 20  # of features, over all places: a map takes 32 times that in bytes


def settle_linear(panel: Panel, config: Config, split: Split) -> Config:
    """Returns the config with what the linear maps are, where that was left to validation.

    Two judges choose the strength for each horizon patch by their absolute errors, which count alike:
    the watched validation windows, and two quarters of the training windows, met by maps solved without
    them; validation alone may be of another regime. Maps for each place in the shortest cycle, and
    calendar terms, must lower the errors by 1 %.

    Args:
        panel: the table, with the categories of its training rows.
        config: resolved but for this.
        split: of this panel.
    """
    model = config.model
    if model.linear not in ("skip", "blend"):
        return config
    strengths = _STRENGTHS if model.linear_strength is None else ()
    places = [model.linear_phases] if model.linear_phases else [1, *_places(panel, config, split)]
    calendar = [model.linear_calendar]
    if model.linear_calendar is None:
        calendar = [False, True] if panel.calendar.cycles else [False]
    tries = [
        config.replaced(model={"linear_phases": number, "linear_calendar": told})
        for number, told in product(places, calendar)
    ]
    if len(tries) == 1 and not strengths:
        return tries[0]
    best, *others = _validated(panel, tries, split, strengths)
    for one in others:
        if one[0] < _WORTH * best[0]:
            best = one
    return best[1]


def bare_network(panel: Panel, config: Config, split: Split) -> Network:
    """Returns a network that knows the scales of the training rows and nothing else."""
    assert config.horizon is not None
    with torch.random.fork_rng(devices=[]):
        network = Network(bare(config).model, shape_of(panel, config.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def bare(config: Config) -> Config:
    """Returns the config with as little attention as there can be."""
    return config.replaced(
        model={
            "linear": "blend",
            "width": 4,
            "heads": 1,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "feed_forward": 1,
        }
    )


def strengths_of(config: Config, horizon: int) -> Tensor:
    """Returns [H] the strength of each lead."""
    strength, patch = config.model.linear_strength, config.model.decoder_patch
    assert strength is not None and patch is not None
    if isinstance(strength, float | int):
        return torch.full((horizon,), float(strength), dtype=torch.float64)
    return torch.tensor(strength, dtype=torch.float64).repeat_interleave(patch)[:horizon]


def cycle_steps(calendar: Calendar, name: str) -> int:
    """Returns the steps of a cycle of the calendar, a nominal number where they differ."""
    length = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}.get(name)
    return round(length / calendar.step) if length else int(name.split()[0])


def _validated(
    panel: Panel, tries: Sequence[Config], split: Split, strengths: Sequence[float]
) -> list[tuple[float, Config]]:
    """Returns, for each try, the error of unseen windows, and the config with the best strengths."""
    widest, horizon = tries[-1], tries[-1].horizon  # its sums hold those of all others
    network = bare_network(panel, widest, split)
    linear, patch = network.linear, widest.model.decoder_patch
    assert linear is not None and horizon is not None and patch is not None
    wanted = [torch.full((horizon,), strength, dtype=torch.float64) for strength in strengths]
    every = spans(network, panel, widest, split.train)
    options = list(product(tries, wanted or [strengths_of(widest, horizon)]))
    maps: list[list[list[list[Tensor]]]] = [[] for _ in options]  # [option][span][fold][map]
    for folds in summed_without(every, _JUDGES):
        unlike = {id(sums): sums for sums in folds}.items()  # most are the same one: solved once
        for own, (config, leads) in zip(maps, options, strict=True):
            solved = {key: _narrowed(linear, sums, leads, config) for key, sums in unlike}
            own.append([solved[id(sums)] for sums in folds])
    drawn = every[0].some(min(_DRAWN, len(split.held) or _DRAWN))
    judges = [drawn, every[0].read(split.validation, split.held)]
    errors = torch.zeros(len(judges), len(maps), horizon, dtype=torch.float64)
    for error, judge in zip(errors, judges, strict=True):
        for rows in judge:
            unseen = torch.isin(every[0].fold(rows), torch.tensor([*_JUDGES, FOLDS]))
            weight = rows.weight[unseen, None].sqrt()
            for number, own in enumerate(maps):
                missed = (rows.target - foretold(every, rows, own))[unseen].abs() * weight
                error[number] += torch.where(missed.isfinite(), missed, 0.0).sum(dim=0)
    patches = torch.stack([part.sum(dim=-1) for part in errors.split(patch, dim=-1)], dim=-1)
    patches = patches.unflatten(1, (len(tries), -1))  # [judge, try, strength, patch]
    # Judges count alike, whatever their windows and units.
    least = patches[:, :1].amin(dim=2, keepdim=True)
    judged = (patches / least.clamp(min=1e-30)).sum(dim=0)
    losses = judged.amin(dim=1).sum(dim=1).tolist()
    if not strengths:
        return list(zip(losses, tries, strict=True))
    chosen = [[strengths[k] for k in own.tolist()] for own in judged.argmin(dim=1)]
    settled = [
        config.replaced(model={"linear_strength": own})
        for config, own in zip(tries, chosen, strict=True)
    ]
    return list(zip(losses, settled, strict=True))


def _narrowed(
    linear: LinearForecast, every: Sequence[Sums], strengths: Tensor, config: Config
) -> list[Tensor]:
    """Returns [P, F, H] or [1, F, H] the maps of a config, from the sums of one that has more."""
    maps = []
    for number, (sums, lookback) in enumerate(zip(every, linear.lookbacks, strict=True)):
        own = sums.pooled() if config.model.linear_phases == 1 else sums
        kept = torch.arange(own.gram.shape[1])
        if not config.model.linear_calendar:
            kept = kept[(kept < lookback) | (kept >= lookback + linear.calendar)]
        less = replace(own, gram=own.gram[:, kept][:, :, kept], cross=own.cross[:, kept])
        free = solution(linear, less, strengths)
        maps.append(torch.zeros(own.cross.shape))
        maps[-1][:, kept] = with_periodic(linear, number, free, less, strengths).float()
    return maps


def _places(panel: Panel, config: Config, split: Split) -> list[int]:
    """Returns the steps of the shortest cycle, where each has windows enough for a map of its own."""
    calendar, lookbacks = panel.calendar, config.model.lookbacks
    assert lookbacks is not None
    if not calendar.cycles:
        return []
    steps, size = cycle_steps(calendar, calendar.cycles[0]), max(lookbacks)
    rows = min(len(split.train), MOST_ROWS)
    enough = rows >= _ROWS_PER_FEATURE * steps * size and steps * size**2 <= _MOST_PRODUCTS
    return [steps] if 2 <= steps <= _MOST_PLACES and enough else []

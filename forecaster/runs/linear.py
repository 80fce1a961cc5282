"""The linear forecast beside attention: settled on validation, solved over training windows.

What comes in: a panel, a config and a split. What goes out: a config that says which maps there are and
how strongly they are held, and a network that holds their solution (`ridge/`). Promised: after
settling, the maps are a function of config and training windows alone; nothing but training windows
enters a map, nothing but those and watched validation windows a choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.linear import LinearSkip
from forecaster.model.network import Network
from forecaster.panel.building.codes import with_categories
from forecaster.panel.calendar import Calendar
from forecaster.panel.clock.frequency import DAY
from forecaster.panel.panel import Panel
from forecaster.runs.ridge.offsets import foretold, learn_offsets
from forecaster.runs.ridge.rows import FOLDS, MOST_ROWS, Windows, spans
from forecaster.runs.ridge.solve import Sums, refined, solution, summed
from forecaster.runs.scales import learn_scales
from forecaster.runs.versions import versions
from forecaster.windows.index import WindowIndex
from forecaster.windows.split import Split, split_panel

_STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
_JUDGES = (1, 3)  # quarters of the training windows that judge maps solved without them
_DRAWN = 1024  # training windows that judge, at most
_WORTH = 0.99  # of the error: more maps, or more features, must lower it by this much
_FARTHEST = 800  # steps back by default: a solution takes the cube of what a map reads
_LENGTHS = 9  # of a lookback that a table must hold before it is the default
_MOST_PLACES, _ROWS_PER_FEATURE = 168, 2
_MOST_PRODUCTS = 1 << 20  # of features, over all places: a map takes 32 times that in bytes


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
    return {
        "linear": kind,
        "lookbacks": lookbacks,
        "linear_lags": lags,
        "context_length": context,
        "attention_length": reads,
    }


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
    strengths = _by_lead(config, linear.horizon)
    maps: list[list[list[Tensor]]] = []  # [span][fold, and all][map]
    with torch.no_grad():
        every = spans(network, panel, config, index)
        for windows, sums in zip(every, _all_sums(every, range(FOLDS)), strict=True):
            own = [[solution(linear, one, strengths) for one in part] for part in sums]
            own[-1] = refined(windows, sums[-1], own[-1], strengths)
            maps.append([[found.float() for found in part] for part in own])
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
    config = settle_linear(panel, _bare(config), split)
    if config.fit.refit:
        unwatched = config.fit.model_copy(update={"validation": None})
        split = split_panel(panel, config.model_copy(update={"fit": unwatched}))
    network = _network(panel, config, split)
    solve_linear(network, panel, config, split.train)
    network.share.zero_()
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


def cycle_steps(calendar: Calendar, name: str) -> int:
    """Returns the steps of a cycle of the calendar, a nominal number where they differ."""
    length = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}.get(name)
    return round(length / calendar.step) if length else int(name.split()[0])


def _validated(
    panel: Panel, tries: Sequence[Config], split: Split, strengths: Sequence[float]
) -> list[tuple[float, Config]]:
    """Returns, for each try, the error of unseen windows, and the config with the best strengths."""
    widest, horizon = tries[-1], tries[-1].horizon  # its sums hold those of all others
    network = _network(panel, widest, split)
    linear, patch = network.linear, widest.model.decoder_patch
    assert linear is not None and horizon is not None and patch is not None
    wanted = [torch.full((horizon,), strength, dtype=torch.float64) for strength in strengths]
    every = spans(network, panel, widest, split.train)
    options = list(product(tries, wanted or [_by_lead(widest, horizon)]))
    maps: list[list[list[list[Tensor]]]] = [[] for _ in options]  # [option][span][fold][map]
    for folds in _all_sums(every, _JUDGES):
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


def _all_sums(every: Sequence[Windows], folds: Sequence[int]) -> Iterator[list[list[Sums]]]:
    """Yields, span by span, [fold][map] what is solved without each quarter, and with all in the end.

    Args:
        every: the windows of each span, the widest first.
        folds: which quarters are wanted; the others are not left out.
    """
    total: list[Tensor] = []
    for windows in every:
        parts = summed(windows)
        total = total or [Sums.over(own).whole for own in parts]
        whole = [Sums.over(own, count) for own, count in zip(parts, total, strict=True)]
        without = [
            [
                Sums.over([*own[:fold], *own[fold + 1 :]], one.whole)
                for own, one in zip(parts, whole, strict=True)
            ]
            if fold in folds
            else whole
            for fold in range(FOLDS)
        ]
        yield [*without, whole]


def _narrowed(
    linear: LinearSkip, every: Sequence[Sums], strengths: Tensor, config: Config
) -> list[Tensor]:
    """Returns [P, F, H] or [1, F, H] the maps of a config, from the sums of one that has more."""
    maps = []
    for sums, lookback in zip(every, linear.lookbacks, strict=True):
        own = sums.pooled() if config.model.linear_phases == 1 else sums
        kept = torch.arange(own.gram.shape[1])
        if not config.model.linear_calendar:
            kept = kept[(kept < lookback) | (kept >= lookback + linear.calendar)]
        less = replace(own, gram=own.gram[:, kept][:, :, kept], cross=own.cross[:, kept])
        maps.append(torch.zeros(own.cross.shape))
        maps[-1][:, kept] = solution(linear, less, strengths).float()
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


def _lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """Returns how far maps look back: a longer table has more of them, each twice the one before."""
    calendar = panel.calendar
    longest = int((panel.last_observed - panel.indptr[:-1] + 1).max())
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    found = [min(first, longest, _FARTHEST)]  # beyond the table there is nothing to read
    while len(found) < 3 and 2 * found[-1] <= min(longest // _LENGTHS, _FARTHEST):
        found.append(2 * found[-1])
    return tuple(found)


def _network(panel: Panel, config: Config, split: Split) -> Network:
    """Returns a network that knows the scales of the training rows and nothing else."""
    assert config.horizon is not None
    with torch.random.fork_rng(devices=[]):
        network = Network(_bare(config).model, shape_of(panel, config.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def _bare(config: Config) -> Config:
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


def _by_lead(config: Config, horizon: int) -> Tensor:
    """Returns [H] the strength of each lead."""
    strength, patch = config.model.linear_strength, config.model.decoder_patch
    assert strength is not None and patch is not None
    if isinstance(strength, float | int):
        return torch.full((horizon,), float(strength), dtype=torch.float64)
    return torch.tensor(strength, dtype=torch.float64).repeat_interleave(patch)[:horizon]

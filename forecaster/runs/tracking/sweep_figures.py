"""A study as pictures: its history, what mattered, how settings and values go together, Pareto front.

What comes in: an Optuna study, minimised. What goes out: matplotlib figures by file name; a study that
has too little for one of them has none of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from optuna import Study
    from optuna.trial import FrozenTrial

_FEWEST = 4  # trials that say anything about importance
_AXES = 8  # settings side by side that can be read
_BLUE, _GREY, _RED = "#2166ac", "#9a9a9a", "#b2182b"


def sweep_figures(
    study: Study, trials: Sequence[FrozenTrial], metrics: Sequence[str]
) -> dict[str, Figure]:
    """Returns the figures of a study by file name.

    Args:
        study: as it is now.
        trials: those that count.
        metrics: names of its values, all to be small.
    """
    complete = [trial for trial in trials if trial.values and np.isfinite(trial.values).all()]
    if not complete:
        return {}
    weights = [_importance(study, complete, place) for place in range(len(metrics))]
    # The settings that matter stand first, and stay where there are too many to draw.
    names = sorted(
        {name for trial in complete for name in trial.params},
        key=lambda name: (-max(weight.get(name, 0.0) for weight in weights), name),
    )
    figures = {"history.png": _history(trials, metrics)}
    if any(weights):
        figures["importance.png"] = _importances(weights, metrics)
    if names and len(complete) > 1:
        figures["settings.png"] = _parallel(complete, names[:_AXES], metrics[0])
    if len(metrics) > 1:
        figures["pareto.png"] = _pareto(complete, metrics)
    return figures


def _history(trials: Sequence[FrozenTrial], metrics: Sequence[str]) -> Figure:
    figure = _canvas(9, 1 + 3 * len(metrics))
    panels = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axes, metric) in enumerate(zip(panels, metrics, strict=True)):
        done = [trial for trial in trials if trial.values and np.isfinite(trial.values[place])]
        numbers = [trial.number for trial in done]
        values = np.array([trial.values[place] for trial in done])
        axes.scatter(numbers, values, s=26, color=_BLUE, label="finished", zorder=3)
        best = np.minimum.accumulate(values)
        axes.step(numbers, best, where="post", color=_BLUE, lw=1.4, label="best so far")
        _spread(axes, values)
        for state, colour, marker in (("PRUNED", _GREY, "|"), ("FAIL", _RED, "x")):
            mine = [trial.number for trial in trials if trial.state.name == state]
            if mine:
                label = {"PRUNED": "pruned", "FAIL": "failed"}[state]
                where = axes.get_xaxis_transform()
                low = np.full(len(mine), 0.03)
                style = {"s": 34, "color": colour, "marker": marker, "label": label}
                axes.scatter(mine, low, transform=where, **style)
        axes.set_ylabel(metric)
        axes.set_xlim(-0.7, max(trial.number for trial in trials) + 0.7)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(alpha=0.25)
    panels[0].set_title("Values over the trials")
    panels[0].legend(loc="upper right", ncols=4, fontsize=8, framealpha=0.9)
    panels[-1].set_xlabel("trial")
    return figure


def _spread(axes: Axes, values: np.ndarray) -> None:
    """Shows where the values differ: one trial that went astray would flatten all others."""
    low, high = float(values.min()), float(values.max())
    usual = float(np.quantile(values, 0.9))
    if len(values) >= 8 and high - low > 5 * (usual - low) > 0:
        axes.set_ylim(low - 0.15 * (usual - low), usual + 0.6 * (usual - low))
        left_out = int((values > axes.get_ylim()[1]).sum())
        said = f"{left_out} above, up to {high:.3g}"
        axes.annotate(said, (0.01, 0.96), xycoords="axes fraction", va="top", fontsize=8)


def _importance(study: Study, complete: Sequence[FrozenTrial], place: int) -> dict[str, float]:
    """Returns each setting's share of what moved a value; nothing where that cannot be known."""
    from optuna.importance import get_param_importances

    values = {trial.values[place] for trial in complete}
    if len(complete) < _FEWEST or len(values) < 2:
        return {}
    everywhere = set.intersection(*(set(trial.params) for trial in complete))
    moved = [
        name for name in sorted(everywhere) if len({str(trial.params[name]) for trial in complete}) > 1
    ]
    if not moved:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = get_param_importances(
                study, params=moved, target=lambda trial: float(trial.values[place])
            )
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items() if np.isfinite(share)}


def _importances(weights: Sequence[dict[str, float]], metrics: Sequence[str]) -> Figure:
    names = sorted(
        {name for weight in weights for name in weight},
        key=lambda name: max(weight.get(name, 0.0) for weight in weights),
    )[-15:]
    figure = _canvas(8, 1.2 + 0.38 * len(names) * max(1, len(metrics)))
    axes = figure.subplots()
    height = 0.8 / len(metrics)
    for place, (weight, metric) in enumerate(zip(weights, metrics, strict=True)):
        rows = np.arange(len(names)) + (place - (len(metrics) - 1) / 2) * height
        bars = axes.barh(
            rows,
            [weight.get(name, 0.0) for name in names],
            0.9 * height,
            color=f"C{place}",
            label=metric,
        )
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_yticks(np.arange(len(names)), names)
    axes.margins(x=0.12)
    axes.set_xlabel("share of the differences it explains (PED-ANOVA)")
    axes.set_title("What mattered")
    if len(metrics) > 1:
        axes.legend(fontsize=8)
    return figure


def _parallel(complete: Sequence[FrozenTrial], names: Sequence[str], metric: str) -> Figure:
    """Draws a line per trial over one axis per setting, the best ones darkest and on top."""
    values = np.array([trial.values[0] for trial in complete])
    figure = _canvas(2.2 + 1.7 * len(names), 5.2)
    axes = figure.subplots()
    columns = [_axis([_shown(trial, name) for trial in complete]) for name in names]
    columns.append(_value_axis(values))
    heights = np.array([column[0] for column in columns]).T  # [trial, axis]
    rank = np.argsort(np.argsort(values)) / max(1, len(values) - 1)
    colours = _colours(rank)
    for trial in np.argsort(-values):
        best = trial == int(np.argmin(values))
        line = dict(color=colours[trial], lw=2.6 if best else 1.0, alpha=1.0 if best else 0.65)
        shown = np.isfinite(heights[trial])  # a conditional setting that this trial did not have
        axes.plot(np.flatnonzero(shown), heights[trial][shown], **line, zorder=3 if best else 2)
    for place, (_, ticks) in enumerate(columns):
        axes.axvline(place, color="0.35", lw=0.8, zorder=1)
        for height, text in ticks:
            box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.75}
            axes.annotate(
                text,
                (place, height),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                bbox=box,
                zorder=5,
            )
    short = [name.replace(".", ".\n") for name in names]
    axes.set_xticks(range(len(columns)), [*short, metric], fontsize=8.5)
    axes.set_xlim(-0.15, len(columns) - 0.55)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(f"Settings and {metric}\ndark: the best trials; thick: the best one", fontsize=10)
    return figure


def _value_axis(values: np.ndarray) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Returns heights of values; one that went astray would press all others to the bottom."""
    low, usual = float(values.min()), float(np.quantile(values, 0.8))
    if len(values) < 8 or values.max() - low <= 3 * (usual - low) or usual == low:
        return _axis([float(value) for value in values])
    heights, ticks = _axis([float(value) for value in np.minimum(values, usual)])
    return heights, [*ticks[:-1], (ticks[-1][0], f"≥ {usual:.3g}")]


def _shown(trial: FrozenTrial, name: str) -> Any:
    """Returns a setting of a trial; None where it has none, "null" where it is off."""
    value = trial.params.get(name)
    return "null" if value is None and name in trial.params else value


def _axis(values: Sequence[Any]) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Returns heights in [0, 1] of one setting's values, NaN where it has none, and its ticks."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present):
        numbers = np.array([np.nan if value is None else float(value) for value in values])
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        log = low > 0 and high / low >= 20
        scaled = np.log(numbers) if log else numbers
        bottom, top = np.nanmin(scaled), np.nanmax(scaled)
        if bottom == top:
            return np.where(np.isfinite(numbers), 0.5, np.nan), [(0.5, f"{low:.4g}")]
        ticks = np.unique(numbers[np.isfinite(numbers)])
        if len(ticks) > 6:
            ticks = np.geomspace(low, high, 5) if log else np.linspace(low, high, 5)
        at = (np.log(ticks) if log else ticks) - bottom
        marks = [
            (float(a / (top - bottom)), f"{t:.4g}" if len(ticks) < 5 else f"{t:.3g}")
            for a, t in zip(at, ticks, strict=True)
        ]
        return (scaled - bottom) / (top - bottom), marks
    words = sorted({str(value) for value in present})
    place = {
        word: k / max(1, len(words) - 1) if len(words) > 1 else 0.5 for k, word in enumerate(words)
    }
    heights = np.array([np.nan if value is None else place[str(value)] for value in values])
    return heights, [(height, word) for word, height in place.items()]


def _colours(rank: np.ndarray) -> np.ndarray:
    from matplotlib import colormaps

    return np.asarray(colormaps["Blues_r"](0.78 * rank))


def _pareto(complete: Sequence[FrozenTrial], metrics: Sequence[str]) -> Figure:
    """Draws the trials that no other beats in everything, for each pair of neighbouring metrics."""
    values = np.array([trial.values for trial in complete])
    beaten = [bool(((values <= mine).all(1) & (values < mine).any(1)).any()) for mine in values]
    front = ~np.array(beaten)
    figure = _canvas(5.4 * (len(metrics) - 1) + 1, 4.8)
    panels = figure.subplots(1, len(metrics) - 1, squeeze=False)[0]
    for place, axes in enumerate(panels):
        x, y = values[:, place], values[:, place + 1]
        axes.scatter(x[~front], y[~front], s=26, color=_GREY, label="beaten in everything")
        order = np.flatnonzero(front)[np.argsort(x[front])]
        line = "-" if len(metrics) == 2 else ""
        axes.plot(x[order], y[order], f"o{line}", color=_BLUE, ms=6, lw=1, label="Pareto front")
        for k in order[: 12 if len(order) <= 12 else 0]:
            axes.annotate(
                str(complete[k].number),
                (x[k], y[k]),
                xytext=(5, 5),
                textcoords="offset points",
                fontsize=8,
            )
        axes.set_xlabel(metrics[place])
        axes.set_ylabel(metrics[place + 1])
        axes.grid(alpha=0.25)
    panels[0].legend(fontsize=8)
    figure.suptitle("What no other trial beats in everything; numbers are trials")
    return figure


def _canvas(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, min(height, 14)), dpi=120, layout="constrained")

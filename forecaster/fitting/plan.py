"""What follows from a request and a table before any window is cut: lengths, patches, columns, cycles.

Nothing here loads Lightning: a forecast without a fit begins with it too.
"""

from __future__ import annotations

from forecaster.config import (
    Config,
    ExpertPlan,
    FitPlan,
    ModelConfig,
    ModelPlan,
    Plan,
    required_horizon,
)
from forecaster.errors import ConfigError
from forecaster.fitting.experts.linear_settings import linear_settings
from forecaster.model.experts import CUTOFFS
from forecaster.model.size import SIZES
from forecaster.panel.audit import default_patch
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods


def first_plan(panel: Panel, config: Config, pool: ExpertPlan) -> Plan:
    """Returns the plan before anything is chosen on windows; its sizes are the least of `SIZES`.

    Args:
        panel: the table.
        config: the request, with a horizon.
        pool: from `pool_settings`.

    Raises:
        ConfigError: patches, penalties and positions do not fit context and horizon.
    """
    horizon = required_horizon(config)
    attention_length, patch = _lengths(config, horizon, panel)
    context_length = attention_length
    if pool.needs_maps:
        linear = linear_settings(config.model, panel, attention_length)
        pool = pool.with_linear(linear)
        # The linear expert reads as many steps at each of the earlier cutoffs.
        context_length = max(*linear.lookbacks, attention_length) + CUTOFFS * pool.cutoff_spacing
    least = SIZES[0]
    model = config.model.settled(
        width=network_width(config.model, least.width),
        context_length=context_length,
        attention_length=attention_length,
        patch=patch,
        decoder_patch=min(patch, horizon),
        known_less_mean=panel.n_series > 1,
        pool=pool,
    )
    fit = config.fit.settled(
        steps=config.fit.steps or 1,
        batch_size=config.fit.batch_size or least.batch_size,
    )
    plan = settled_plan(panel, config, model, fit)
    _check_tokens(plan, config.model.ridge_alpha)
    return plan


def settled_plan(panel: Panel, config: Config, model: ModelPlan, fit: FitPlan) -> Plan:
    """Returns the plan of a request: its parts as settled, and roles, step and season of the table."""
    schema = panel.schema.as_read
    roles = ("series", "target", "known", "past", "static", "layout")
    data = {name: getattr(schema, name) for name in roles} | {
        "time": schema.time or "row",
        "freq": None if config.data.resample else schema.freq,
        "season_length": panel.calendar.season,
        "periods": panel.calendar.periods,
    }
    return Plan(
        horizon=config.horizon or 0,
        data=config.data.settled(**data),
        target=config.target,
        model=model,
        fit=fit,
    )


def with_found_cycles(panel: Panel, config: Config) -> Panel:
    """Returns the panel with season and periods found in its training rows, where it has no clock."""
    calendar, periods = panel.calendar, config.data.periods
    given = calendar.season is not None and periods is not None
    if given or not calendar.integer or not panel.regular:
        return panel
    if config.horizon is None or (panel.last_observed < 0).all():
        return panel
    seen = panel.until(panel.split_time(config.horizon, config.fit.validation))
    found = find_periods(seen.values[:, : panel.n_channels], seen.indptr)
    if not found:
        return panel
    if periods is None:
        # Numbered rows of several series share no clock: row 7 is another hour in each of them.
        shared = panel.schema.time is not None or panel.n_series == 1
        periods = tuple(sorted(period.steps for period in found)) if shared else ()
    return panel.with_cycles(calendar.season or found[0].steps, periods)


def network_width(model: ModelConfig, default: int) -> int:
    """Returns the requested width, else the default, rounded up to what the heads divide."""
    unit = 2 * model.heads  # each head has pairs of numbers, which sinusoids need
    return model.width or -(-default // unit) * unit


def _lengths(config: Config, horizon: int, panel: Panel) -> tuple[int, int]:
    """Context length and patch."""
    model, season = config.model, panel.calendar.season_length
    longest = panel.longest
    patch = model.patch
    if patch is None:
        patch = 1 if model.tokenizes_values else default_patch(season, longest, horizon)
    context = model.context_length
    if context is None:
        seasons = 7 * season if "day" in panel.calendar.cycles else 2 * season
        context = min(max(4 * horizon, seasons), max(2, longest // 3))
        context = max(1, context // patch) * patch
    elif model.patch is None:
        patch = min(patch, context)
    return max(2, context), patch


def _check_tokens(plan: Plan, alphas: float | tuple[float, ...] | None) -> None:
    """Refuses patches, penalties and positions that context and horizon do not fit."""
    model = plan.model
    length = model.attention_length or model.context_length
    if model.patch > length:
        raise ConfigError(
            f"model.patch {model.patch} is longer than model.context_length {length}: "
            f"shorten the patch, or lengthen the context"
        )
    ahead = -(-plan.horizon // model.decoder_patch)
    if isinstance(alphas, tuple) and len(alphas) != ahead:
        raise ConfigError(
            f"model: {len(alphas)} values of ridge_alpha for {ahead} horizon patches "
            f"(horizon {plan.horizon} in patches of {model.decoder_patch}): give one for each, or one "
            "for all"
        )

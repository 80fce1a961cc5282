"""Networks of the smallest width with random weights, and random inputs to them."""

from dataclasses import fields, replace

import torch

from forecaster.config import ExpertPlan, LinearPlan, ModelPlan
from forecaster.model.embedding import Shape
from forecaster.model.heads import BinnedHead
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.windows.batch import Inputs, no_effects

CONTEXT, HORIZON = 18, 7  # multiples of neither patch: 4 in the context, 3 in the horizon
HISTORY = 40
LINEAR = LinearPlan(lookbacks=(3, 8))
EXPERTS = ExpertPlan(
    experts=("naive", "ets", "seasonal_mean", "linear"),
    history_length=HISTORY,
    memory=24,
    seasons=(4, 0),
    linear=LINEAR,
)
"""Experts for these networks; their earlier cutoffs are eight steps of the context."""

EVERYTHING = Shape(
    horizon=HORIZON,
    channels=2,
    past=1,
    known=2,
    static=1,
    past_categories=(3,),
    known_categories=(2, 4),
    static_categories=(2,),
    cycles=2,
)
PLAIN = Shape(horizon=HORIZON, channels=2, cycles=1)


def make_network(shape: Shape, **settings: object) -> Network:
    """Returns a network in evaluation mode; the output layer is random too, not its initial zeros."""
    torch.manual_seed(0)
    small = dict(width=8, heads=2, encoder_layers=1, patch=4, decoder_patch=3, context_length=CONTEXT)
    small["pool"] = ExpertPlan(history_length=HISTORY)
    config = ModelPlan(**(small | settings))
    network = Network(config, shape).eval().requires_grad_(False)
    torch.nn.init.normal_(network.output.weight, std=0.3)
    for name, buffer in network.named_buffers():
        if name.endswith(("loc", "scale", "spread")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    if network.experts is not None:
        network.network_weight.fill_(0.5)
        if network.experts.linear is not None:
            for weights in network.experts.linear.maps:
                torch.nn.init.normal_(weights, std=0.3)
    return network


def with_linear(**settings: object) -> ExpertPlan:
    """Returns these experts with some settings of the linear one replaced."""
    return EXPERTS.with_linear(LINEAR.model_copy(update=settings))


def make_inputs(
    shape: Shape,
    batch: int = 3,
    missing: float = 0.2,
    seed: int = 0,
    drivers: int = 0,
    driver_length: int = 1,
) -> Inputs:
    """Returns random windows; unobserved cells hold NaN, the last context cell is always observed."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*axes: int) -> torch.Tensor:
        cells = torch.randn(axes, generator=generator).double()
        return cells.masked_fill(torch.rand(axes, generator=generator) < missing, torch.nan)

    def codes(sizes: tuple[int, ...], *axes: int) -> torch.Tensor:
        columns = [torch.randint(0, size + 1, axes, generator=generator) for size in sizes]
        return torch.stack(columns, -1) if columns else torch.zeros(*axes, 0, dtype=torch.int64)

    span = CONTEXT + shape.horizon
    elapsed = torch.arange(1.0 - CONTEXT, shape.horizon + 1).expand(batch, -1)
    if not shape.regular:
        gaps = 0.2 + torch.rand((batch, span), generator=generator)
        elapsed = gaps.cumsum(1) - gaps.cumsum(1)[:, CONTEXT - 1 : CONTEXT]
    history = 20 + 3 * numbers(batch, HISTORY, shape.channels)
    history[:, -1] = 21.0
    context = history[:, -CONTEXT:].clone()
    past, known = numbers(batch, CONTEXT, shape.past), numbers(batch, span, shape.known)
    return Inputs(
        context=context,
        observed=~context.isnan(),
        past=past,
        past_observed=~past.isnan(),
        known=known,
        known_observed=~known.isnan(),
        static=numbers(batch, shape.static),
        static_category=codes(shape.static_categories, batch),
        past_category=codes(shape.past_categories, batch, CONTEXT),
        known_category=codes(shape.known_categories, batch, span),
        phase=torch.rand((batch, span, shape.cycles), generator=generator),
        elapsed=elapsed,
        channel=torch.arange(1, shape.channels + 1).expand(batch, -1),
        history=history,
        history_observed=~history.isnan(),
        drivers=numbers(batch, driver_length, drivers),
        **no_effects(batch, shape.channels),
    )


def mode(network: Network, raw: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Returns the middle of the most likely bin of a binned head, else the median; data units."""
    if not isinstance(network.head, BinnedHead):
        return network.head.quantiles(raw, scale)[..., network.config.quantile_levels.index(0.5)]
    likely = network.head.vocabulary.values(raw.argmax(-1))
    return scale.invert(likely[..., None])[..., 0]


def greedy(network: Network, inputs: Inputs) -> torch.Tensor:
    """Returns the path that always takes the mode, data units."""
    take = lambda raw, scale, lead: mode(network, raw, scale)  # noqa: E731
    return network.generate(network.encode(inputs), inputs, take, 1)[:, 0]


def rows_of(inputs: Inputs, rows: slice | list[int]) -> Inputs:
    """Returns some windows of a batch."""
    return Inputs(*(getattr(inputs, field.name)[rows] for field in fields(inputs)))


def one_channel(inputs: Inputs, channel: int) -> Inputs:
    """Returns the windows of one channel."""
    at = slice(channel, channel + 1)
    return replace(
        inputs,
        context=inputs.context[..., at],
        observed=inputs.observed[..., at],
        channel=inputs.channel[:, at],
        history=inputs.history[..., at],
        history_observed=inputs.history_observed[..., at],
        **no_effects(len(inputs.channel), 1),
    )


def with_targets(inputs: Inputs, history: torch.Tensor) -> Inputs:
    """Returns the windows of other targets; NaN = missing."""
    observed = ~history.isnan()
    return replace(
        inputs,
        context=history[:, -CONTEXT:],
        observed=observed[:, -CONTEXT:],
        history=history,
        history_observed=observed,
    )


def with_other_future(inputs, lead):
    """Returns inputs whose known covariates, phases and elapsed times differ after a lead."""
    after = slice(CONTEXT + lead, None)
    other = {name: getattr(inputs, name).clone() for name in ("known", "known_category", "phase")}
    other["known"][:, after] = 50.0
    other["known_category"][:, after] = 1
    other["phase"][:, after] = 0.123
    elapsed = inputs.elapsed.clone()
    elapsed[:, after] += 3.0
    return replace(inputs, **other, elapsed=elapsed, known_observed=~other["known"].isnan())

"""What training does to its windows, and nothing else does: noise, and hidden patches.

What comes in: `Inputs` of a training batch. What goes out: `Inputs` with a noisier or emptier context.
Random numbers come from torch's own stream, which the fit's seed fixes.

Axes: B batch · L context · C channel.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from forecaster.config import FitPlan
from forecaster.model.scaling import ContextScaler
from forecaster.windows.batch import Inputs


def augmented(inputs: Inputs, config: FitPlan, scaler: ContextScaler, patch: int) -> Inputs:
    """Returns what the network is shown in place of a training window.

    Args:
        inputs: as cut from the panel.
        config: `noise` and `patch_masking`.
        scaler: tells the spread that noise is measured in.
        patch: steps per token of the context.
    """
    if config.noise is not None:
        inputs = _noisy(inputs, config.noise, scaler)
    if config.patch_masking is not None:
        inputs = _hidden(inputs, hidden_steps(inputs.observed, config.patch_masking, patch))
    return inputs


def hidden_steps(observed: Bool[Tensor, "B L C"], share: float, patch: int) -> Bool[Tensor, "B L"]:
    """Returns the steps to hide: in each window one run of whole patches, somewhere.

    A window that would have nothing left is spared.

    Args:
        observed: True where a target is real.
        share: of the patches; at least one is hidden.
        patch: steps per token; the oldest is cut short where they do not fill the context.
    """
    batch, length = observed.shape[:2]
    patches = -(-length // patch)
    run = max(1, round(share * patches))
    first = torch.randint(0, patches - run + 1, (batch, 1), device=observed.device)
    number = (torch.arange(length, device=observed.device) + (patches * patch - length)) // patch
    hidden = (number >= first) & (number < first + run)
    left = (observed & ~hidden[..., None]).any(dim=2).any(dim=1)
    return hidden & left[:, None]


def _noisy(inputs: Inputs, spread: float, scaler: ContextScaler) -> Inputs:
    scale = scaler(inputs.context, inputs.observed, inputs.channel).scale
    noise = spread * scale[:, None] * torch.randn_like(inputs.context)
    return replace(inputs, context=inputs.context + noise)


def _hidden(inputs: Inputs, hidden: Tensor) -> Inputs:
    cells = hidden[..., None]
    return replace(
        inputs,
        context=inputs.context.masked_fill(cells, torch.nan),
        observed=inputs.observed & ~cells,
        past=inputs.past.masked_fill(cells, torch.nan),
        past_observed=inputs.past_observed & ~cells,
        past_category=inputs.past_category.masked_fill(cells, 0),
    )

"""The `fit` section of a config: how a network is taught.

What comes in is a mapping, what goes out is frozen. What contradicts another section is refused in
`config.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from forecaster.network_config import FROM_DATA, LONGEST, MANY, WIDEST, Section


class FitConfig(Section):
    """Training."""

    steps: Annotated[int, Field(ge=1, le=MANY), *FROM_DATA] = 400
    """Optimiser steps at most; null = chosen from the number of training windows."""
    batch_size: int = Field(256, ge=1, le=LONGEST)
    """Channel-windows per step."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Fixes initial weights, dropout and the order of windows."""
    learning_rate: float = Field(4e-3, gt=0)
    """Peak rate of AdamW."""
    weight_decay: float = Field(0.05, ge=0)
    """Decoupled weight decay of AdamW, on matrices only."""
    warmup: float = Field(0.05, ge=0, le=1)
    """Share of the steps in which the rate rises; a cosine to zero follows."""
    gradient_clip: float | None = Field(1.0, gt=0)
    """Largest gradient norm; null = off."""
    average_decay: float | None = Field(0.99, gt=0, lt=1)
    """Decay of the moving average of weights that is validated and kept; null = off."""
    validation: float | None = Field(0.15, gt=0, lt=0.9)
    """Share of the time axis, at its end, that early stopping watches; null = off."""
    validation_windows: int = Field(1024, ge=1, le=MANY)
    """Validation windows watched at most; where there are more, an even draw of them."""
    validate_every: int = Field(50, ge=1, le=MANY)
    """Steps between validations."""
    patience: int | None = Field(5, ge=1, le=MANY)
    """Validations without a better loss before training stops; null = never."""
    stride: int = Field(1, ge=1, le=LONGEST)
    """Steps between the cutoffs of neighbouring windows, counted back from each series' last row; a
    day's steps learn from the hour of the day alone at which the table ends."""
    least_history: int | None = Field(None, ge=1, le=LONGEST)
    """Rows of its series up to the cutoff that a training window needs; null = those of a patch. With
    as many as the context has, none is padded."""
    loss: Literal["pinball", "mae", "huber"] = "pinball"
    """What the median learns from. pinball: with all quantiles alike; mae: the absolute error alone;
    huber: the squared error where it is small. The other quantiles learn their distance from it."""
    frequency_weight: float | None = Field(None, gt=0)
    """Weight of the absolute error of the median's spectrum over the leads; null = off."""
    linear_rate: float | None = Field(None, gt=0)
    """Learning rate at which linear maps go on from their solution; null = they stay."""
    members: int = Field(1, ge=1, le=100)
    """Networks of different seeds whose quantiles are averaged, weighted by validation."""
    member_lengths: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = Field(
        None, max_length=100
    )
    """`model.attention_length` of each member in turn; null = that of the model."""
    refit: bool = False
    """Fit again on all rows, validation's too, what validation has chosen: steps, shares, widths."""
    budget_seconds: float | None = Field(None, gt=0)
    """Bounds the training: 20 steps are measured, and the steps are lowered to what fits in.
    The resolved config says how many; null = no bound."""
    calibration: float | None = Field(0.5, gt=0, lt=1)
    """Share of the validated cutoffs, at their end, that early stopping leaves to the calibration of
    quantiles; null = quantiles stay as they are."""
    lead_decay: float | None = Field(None, gt=0, lt=1)
    """Weight of each lead in the training loss, relative to the lead before; null = all alike."""
    noise: float | None = Field(None, gt=0)
    """Spread of the noise added to the context while training, in scaled units; null = off."""
    patch_masking: float | None = Field(None, gt=0, lt=1)
    """Share of the context hidden while training, as one run of patches per window; null = off."""
    scheduled_sampling: float | None = Field(None, gt=0, le=1)
    """Share of previous patches that an autoregressive decoder draws itself while training, at the
    last step; it rises evenly from none. Null = off: the truth is always given."""
    precision: Literal["full", "bf16", "auto"] = "full"
    """full: float32; bf16: products of matrices in bfloat16; auto: bf16 where this machine was measured
    to be faster with it. The resolved config says which."""
    compile: bool = False
    """Let torch compile the network before training; pays on a GPU in a long fit."""
    checkpoint_minutes: float | None = Field(10.0, gt=0)
    """Minutes between checkpoints, which `--resume` goes on from; null = none."""
    checkpoint_every: int | None = Field(None, ge=1, le=MANY)
    """Steps between checkpoints, in place of minutes."""
    freeze_encoder: bool = False
    """Keep the encoder of the weights that a fit starts from (`--from`) as it is."""
    adapters: int | None = Field(None, ge=1, le=WIDEST)
    """Rank of the changes that attention and feed-forward matrices may learn, the weights a fit starts
    from (`--from`) staying as they are. Null = off: they learn whole."""

"""Attention rollout: how much of each token is left in what comes out at the top.

What comes in: attention weights per layer and head. What goes out: for each horizon token its shares of
all context and horizon tokens. Promised: where weights are shares, so is the rollout: rows sum to 1.

Source: Abnar and Zuidema, "Quantifying attention flow in transformers" (2020), section 3: heads are
averaged, the way around each attention counts as much as the attention itself, layers are multiplied.
An encoder-decoder is one stack over the context's tokens followed by the horizon's.

Axes: A head · M context token · N horizon token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def encoder_rollout(layers: Sequence[NDArray[np.floating]]) -> Floats:
    """Returns [M, M]: how much of each context token the encoder's tokens hold.

    Args:
        layers: [A, M, M] self-attention, bottom first; at least one.
    """
    held: Floats = np.eye(layers[0].shape[-1])
    for weights in layers:
        held = _half_kept(_mean(weights), np.eye(len(held))) @ held
    return held


def rollout(
    encoder: Sequence[NDArray[np.floating]],
    decoder: Sequence[NDArray[np.floating]],
    cross: Sequence[NDArray[np.floating]],
) -> Floats:
    """Returns [N, M + N]: how much of each context token and each horizon token the forecast holds.

    Args:
        encoder: [A, M, M] self-attention over the context, bottom first.
        decoder: [A, N, N] self-attention over the horizon, bottom first.
        cross: [A, N, M] attention of the horizon to the context, bottom first.
    """
    remembered = encoder_rollout(encoder)
    context, horizon = len(remembered), decoder[0].shape[-1]
    memory = np.hstack([remembered, np.zeros((context, horizon))])
    held: Floats = np.hstack([np.zeros((horizon, context)), np.eye(horizon)])
    for among, across in zip(decoder, cross, strict=True):
        held = _half_kept(_mean(among), np.eye(horizon)) @ held
        # Half is what the token was, half is what it took from the context.
        both = _half_kept(
            np.hstack([_mean(across), np.zeros((horizon, horizon))]),
            np.hstack([np.zeros((horizon, context)), np.eye(horizon)]),
        )
        held = both[:, :context] @ memory + both[:, context:] @ held
    return held


def _mean(weights: NDArray[np.floating]) -> Floats:
    mean: Floats = weights.mean(axis=0, dtype=np.float64)
    return mean


def _half_kept(taken: Floats, kept: Floats) -> Floats:
    """Half of each, as shares: a token that took nothing is all it was."""
    mixed = 0.5 * taken + 0.5 * kept
    shares: Floats = mixed / mixed.sum(axis=-1, keepdims=True)
    return shares

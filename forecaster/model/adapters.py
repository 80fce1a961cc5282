"""What stays as it is while a network learns further: a frozen encoder, matrices with low-rank changes.

What comes in: a network whose weights have learned something. What goes out: the same network, of which
less is trained; `merged` makes the changes part of plain matrices again, so that nothing else knows of
them. Source: Hu et al., "LoRA: low-rank adaptation of large language models" (2021).

Axes: B batch · X, Y number in, number out · R rank.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.layers import FeedForward
from forecaster.model.network import Network


class Adapted(nn.Module):
    """A linear map that stays, plus a change of low rank that learns: W·x + up·down·x."""

    def __init__(self, linear: nn.Linear, rank: int):
        """Starts as the map itself: `up` is zero.

        Args:
            linear: stays as it is.
            rank: R.
        """
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, numbers: Float[Tensor, "*B X"]) -> Float[Tensor, "*B Y"]:
        """Returns the map's numbers with the change added."""
        changed: Tensor = self.linear(numbers) + self.up(self.down(numbers))
        return changed

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Returns one plain map that does the same."""
        self.linear.weight += self.up.weight @ self.down.weight
        return self.linear


def freeze_encoder(network: Network) -> None:
    """Keeps the encoder's layers, its norm and its stem as they are.

    What reads the table before them still learns: a new table may have new columns.
    """
    for part in (network.encoder, network.encoder_norm, network.stem):
        if part is not None:
            part.requires_grad_(False)


def adapt(network: Network, rank: int) -> None:
    """Lets attention and feed-forward matrices learn by changes of low rank alone.

    Those that are frozen stay so, without a change.

    Args:
        network: changed in place.
        rank: of every change.
    """
    for part in list(network.modules()):
        if isinstance(part, MultiHeadAttention | FeedForward):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear) and linear.weight.requires_grad:
                    setattr(part, name, Adapted(linear, rank))


def merge(network: Network) -> None:
    """Makes every change part of its matrix; the network is then built as if it had had none."""
    for part in list(network.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Adapted):
                setattr(part, name, child.merged())

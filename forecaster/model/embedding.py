"""Cells become the numbers of tokens: categories looked up, channels folded, steps patched.

What comes in: tensors of `Inputs`. What goes out: tensors that a linear map turns into tokens.
Covariates either enter the patches of the targets (`Covariates.together`) or, with channel attention,
are channels of their own (`Covariates.apart`); never both.

Axes: B batch · C channel · L, T step · N token · X number per step · K covariate · D width. Channels
of a window lie side by side: [B, C, …] is folded to [B·C, …].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.windows.batch import Inputs


class Covariates(NamedTuple):
    """Covariates of one kind over one span, scaled and looked up."""

    numbers: Tensor
    """[B, T, X] in training-row spreads; 0 where not observed."""
    observed: Tensor
    """[B, T, X] True where a number is real."""
    codes: Tensor
    """[B, T, Y] of categories; 0 = unknown."""
    embedded: list[Tensor]
    """Y times [B, T, _]."""

    def together(self) -> Tensor:
        """Returns [B, T, _] everything beside each other, marks of what is real included."""
        return torch.cat([self.numbers, self.observed.float(), *self.embedded], dim=-1)

    def apart(self) -> list[tuple[Tensor, Tensor]]:
        """Returns, per covariate, its cells [B, T, _] and where they are real [B, T, 1]."""
        pairs = torch.stack([self.numbers, self.observed.float()], dim=-1)
        marks = torch.cat([self.observed, self.codes > 0], dim=-1)
        cells = [*pairs.unbind(dim=2), *self.embedded]
        return list(zip(cells, marks[..., None].unbind(dim=2), strict=True))


class CovariateChannels(nn.Module):
    """Covariates as channels of tokens, each through a linear map of its own."""

    def __init__(self, widths: Sequence[int], patch: int, width: int):
        """Takes what there is to embed; none makes a module that adds no channels.

        Args:
            widths: numbers per step of each covariate.
            patch: steps per token.
            width: D.
        """
        super().__init__()
        self.patch, self.width = patch, width
        self.maps = nn.ModuleList(nn.Linear(patch * size, width) for size in widths)

    def __len__(self) -> int:
        return len(self.maps)

    def forward(
        self, covariates: Sequence[tuple[Tensor, Tensor]], front: bool = True
    ) -> tuple[Float[Tensor, "B K N D"], Bool[Tensor, "B K N"]]:
        """Returns tokens, and where one holds an observation.

        Args:
            covariates: K times cells [B, T, _] and marks [B, T, 1]; K at least 1.
            front: whether the old end is padded.
        """
        tokens = [
            linear(patched(cells, self.patch, front))
            for linear, (cells, _) in zip(self.maps, covariates, strict=True)
        ]
        real = [patched(mark, self.patch, front).any(dim=-1) for _, mark in covariates]
        return torch.stack(tokens, dim=1), torch.stack(real, dim=1)


def category_tables(sizes: tuple[int, ...]) -> nn.ModuleList:
    """Returns one table per category; row 0, the unknown, stays zero."""
    return nn.ModuleList(
        nn.Embedding(size + 1, min(16, 2 + size // 2), padding_idx=0) for size in sizes
    )


def widths_of(numbers: int, *tables: nn.ModuleList) -> list[int]:
    """Returns how many numbers a step of each covariate has: value and mark, or an embedding."""
    entries = [entry for table in tables for entry in table if isinstance(entry, nn.Embedding)]
    return [2] * numbers + [entry.embedding_dim for entry in entries]


def looked_up(tables: nn.ModuleList, codes: Tensor) -> list[Tensor]:
    """Returns [B, …, _] the embedding of each column of codes."""
    return [table(codes[..., i]) for i, table in enumerate(tables)]


def fold(cells: Tensor) -> Tensor:
    """Returns [B·C, L, 1] of [B, L, C]: a window per channel."""
    return cells.transpose(1, 2).flatten(0, 1)[..., None]


def marked(values: Tensor) -> list[Tensor]:
    """Returns what a patch is told of cells: values, 0 where they are NaN, and where they are real."""
    observed = ~values.isnan()
    return [torch.where(observed, values, 0.0), observed.float()]


def repeat(shared: Tensor, channels: int) -> Tensor:
    """Returns [B·C, …] of [B, …]: what all channels of a window share, once for each."""
    return shared if channels == 1 else shared.repeat_interleave(channels, dim=0)


def beside(folded: Tensor, others: Tensor) -> Tensor:
    """Returns [B·(C + K), …] of [B·C, …] and [B, K, …]: channels added to each window."""
    windows = folded.unflatten(0, (others.shape[0], -1))
    return torch.cat([windows, others], dim=1).flatten(0, 1)


def for_paths(folded: Tensor, channels: int, paths: int) -> Tensor:
    """Returns [B·S·channels, …] of [B·channels, …]: each window once per path."""
    windows: Tensor = folded.unflatten(0, (-1, channels))
    return windows.repeat_interleave(paths, dim=0).flatten(0, 1)


def shifted(inputs: Inputs, target: Float[Tensor, "B H C"], size: int) -> Float[Tensor, "B T C"]:
    """Returns, for each horizon patch, the values of the patch before it, data units; NaN = missing.

    Args:
        inputs: the context, whose last values come before the first patch.
        target: values after the cutoff, data units; none gives the last values of the context alone.
        size: steps per patch.
    """
    context = inputs.context.masked_fill(~inputs.observed, torch.nan)[:, -size:]
    short = size - context.shape[1]
    steps = size * max(1, -(-target.shape[1] // size))
    return F.pad(torch.cat([context, target], dim=1), (0, 0, short, 0), value=torch.nan)[:, :steps]


def of_channels(folded: Tensor, channels: int, kept: int) -> Tensor:
    """Returns [B·kept, …] of [B·channels, …]: the first channels of each window."""
    if kept == channels:
        return folded
    windows: Tensor = folded.unflatten(0, (-1, channels))
    return windows[:, :kept].flatten(0, 1)


def patched(cells: Tensor, size: int, front: bool = True) -> Tensor:
    """Returns [B, N, size·X] of [B, T, X]; what does not fill a patch is padded with zeros.

    Args:
        cells: of consecutive steps.
        size: steps per patch.
        front: whether the old end is padded, so that the newest cell is the last of a patch.
    """
    missing = -cells.shape[1] % size
    if missing:
        padding = cells.new_zeros((cells.shape[0], missing, cells.shape[2]))
        cells = torch.cat([padding, cells] if front else [cells, padding], dim=1)
    patches: Tensor = cells.unflatten(1, (-1, size))
    return patches.flatten(2)

"""Channels and covariates as tensors: folding, patching, category embeddings.

Channels share their weights: [B, …, C] is folded to [B·C, …], the channels of a window side by side.
Covariates enter the patches of the targets (`Covariates.by_step`) or, with channel attention, are
channels of their own (`Covariates.by_covariate`); never both.

Axes: B batch · C channel · T step · N token · X number per step · Y category · K covariate · D width ·
S path · R row, a channel of a window · J cutoff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

# With a coefficient each, of a level or a profile: of more, each would be known from too few rows.
_MOST_CATEGORIES = 32


def fold(cells: Tensor) -> Tensor:
    """[B, T, C] → [B·C, T, 1]."""
    return cells.transpose(1, 2).flatten(0, 1)[..., None]


def repeat_channels(shared: Tensor, channels: int) -> Tensor:
    """[B, …] → [B·C, …], the same for all channels of a window."""
    return shared if channels == 1 else shared.repeat_interleave(channels, dim=0)


def before_cutoffs(values: Tensor, shifts: Sequence[int], steps: int) -> Tensor:
    """[R, T] → [R, J, steps], what lies before each of J cutoffs that many steps (`shifts`) back."""
    ends = [values.shape[1] - shift for shift in shifts]
    return torch.stack([values[:, end - steps : end] for end in ends], dim=1)


def thin_product(values: Tensor, columns: Tensor) -> Tensor:
    """[R, J, K] @ [K, C] of few columns, as its transpose: a third of the time of ten columns."""
    product = columns.T @ values.flatten(0, 1).T  # [C, R·J]
    return product.T.unflatten(0, (-1, values.shape[1]))


def last_steps(count: Tensor, steps: int) -> Tensor:
    """[R] → [R, steps], True in the last `count` steps of each row."""
    return torch.arange(steps, device=count.device) >= steps - count[:, None]


def keep_channels(folded: Tensor, channels: int, kept: int) -> Tensor:
    """[B·channels, …] → [B·kept, …], the first channels of each window."""
    if kept == channels:  # no copy
        return folded
    return folded.unflatten(0, (-1, channels))[:, :kept].flatten(0, 1)


def add_channels(folded: Tensor, covariates: Tensor) -> Tensor:
    """[B·C, …] and [B, K, …] → [B·(C + K), …]."""
    windows = folded.unflatten(0, (covariates.shape[0], -1))  # [B, C, …]
    return torch.cat([windows, covariates], dim=1).flatten(0, 1)


def repeat_paths(folded: Tensor, channels: int, paths: int) -> Tensor:
    """[B·C, …] → [B·S·C, …], each window once per sample path."""
    return folded.unflatten(0, (-1, channels)).repeat_interleave(paths, dim=0).flatten(0, 1)


def patches(cells: Tensor, size: int, front: bool = True) -> Tensor:
    """[B, T, X] → [B, N, size·X], padded with zeros to whole patches.

    `front`: at the old end, so that the newest cell is the last of a patch.
    """
    missing = -cells.shape[1] % size
    if missing:
        padding = cells.new_zeros((cells.shape[0], missing, cells.shape[2]))
        cells = torch.cat([padding, cells] if front else [cells, padding], dim=1)
    return cells.unflatten(1, (-1, size)).flatten(2)


def values_and_mask(values: Tensor) -> list[Tensor]:
    """Returns values with 0 in place of NaN, and 1 where they are observed."""
    observed = ~values.isnan()
    return [torch.where(observed, values, 0.0), observed.float()]


def category_embeddings(sizes: tuple[int, ...]) -> nn.ModuleList:
    """Returns one embedding per category; row 0, the unknown, stays zero."""
    # `padding_idx`: row 0 has no gradient.
    return nn.ModuleList(
        nn.Embedding(size + 1, min(16, 2 + size // 2), padding_idx=0) for size in sizes
    )


def embedded(tables: nn.ModuleList, codes: Tensor) -> list[Tensor]:
    """Returns the embedding [B, …, _] of each column of codes."""
    return [table(codes[..., i]) for i, table in enumerate(tables)]


def few_categories(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the numbers of categories, 0 in place of those too many for a coefficient each."""
    return tuple(size if size <= _MOST_CATEGORIES else 0 for size in sizes)


def indicators(codes: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Returns, of each column of codes that has a size, 1 for its category [B, …, size]; 0 for others."""
    return [
        (codes[..., i, None] == torch.arange(1, size + 1, device=codes.device)).float()
        for i, size in enumerate(sizes)
        if size
    ]


def widths_per_step(numbers: int, *tables: nn.ModuleList) -> list[int]:
    """Returns the numbers per step of each covariate: value and mask, or an embedding."""
    entries = [entry for table in tables for entry in table if isinstance(entry, nn.Embedding)]
    return [2] * numbers + [entry.embedding_dim for entry in entries]


class Covariates(NamedTuple):
    """Covariates of one kind over one span, standardised and embedded."""

    numbers: Tensor
    """[B, T, X] in training-row spreads; 0 where not observed."""
    observed: Tensor
    """[B, T, X] True where a number is real."""
    codes: Tensor
    """[B, T, Y] of categories; 0 = unknown."""
    embedded: list[Tensor]
    """Y times [B, T, _]."""

    def by_step(self) -> Tensor:
        """Returns [B, T, _] all numbers per step, masks included."""
        return torch.cat([self.numbers, self.observed.float(), *self.embedded], dim=-1)

    def by_covariate(self) -> list[tuple[Tensor, Tensor]]:
        """Returns, per covariate, its cells [B, T, _] and where they are real [B, T, 1]."""
        pairs = torch.stack([self.numbers, self.observed.float()], dim=-1)  # [B, T, X, 2]
        real = torch.cat([self.observed, self.codes > 0], dim=-1)  # [B, T, X + Y]
        cells = [*pairs.unbind(dim=2), *self.embedded]
        return list(zip(cells, real[..., None].unbind(dim=2), strict=True))


class CovariateChannels(nn.Module):
    """Covariates as channels of tokens, each through a linear map of its own."""

    def __init__(self, widths: Sequence[int], patch: int, width: int):
        """Takes the numbers per step of each covariate; none makes a module that adds no channels."""
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
            covariates: K times cells [B, T, _] and where they are real [B, T, 1]; K at least 1.
            front: whether the old end is padded.
        """
        tokens = [
            linear(patches(cells, self.patch, front))
            for linear, (cells, _) in zip(self.maps, covariates, strict=True)
        ]
        # A token is real where any cell of its patch is.
        real = [patches(mask, self.patch, front).any(dim=-1) for _, mask in covariates]
        return torch.stack(tokens, dim=1), torch.stack(real, dim=1)

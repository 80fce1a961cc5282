"""Fine-tuning: weights of one network into another, frozen encoders, adapters (LoRA).

Columns of linear maps that read a table are matched by their keys, as (step of the patch, "past", "wind",
"value"), embeddings by category; layers, norms and head are copied. New columns start at zero, so that
the new network forecasts what the old one would have. Nothing is matched by shape only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.model.attention import MultiHeadAttention
from forecaster.model.layers import FeedForward
from forecaster.model.network import Network
from forecaster.model.positions import HARMONICS

Names = tuple[str, ...]
Key = tuple[object, ...]
KINDS = ("past", "known", "static")
_FAR = 3.0  # spreads, or ratio of spreads, from which a covariate may be another thing


@dataclass(frozen=True)
class Meaning:
    """Names of the inputs of a network."""

    numbers: Mapping[str, Names]
    """By kind of covariate ("past", "known", "static"): those that are numbers, in order."""
    categories: Mapping[str, Names]
    """The same for those that are categories."""
    words: Mapping[str, Names]
    """By category: code c >= 1 is words[name][c - 1]."""
    channels: Names
    """Code c >= 1 is channels[c - 1]."""
    cycles: Names
    """Of the calendar."""


@dataclass
class Part:
    """Outcome of the transfer of one part of a network."""

    name: str
    carried: list[str] = field(default_factory=list)
    """Names that both networks have."""
    new: list[str] = field(default_factory=list)
    """Names of the new network only."""
    left: list[str] = field(default_factory=list)
    """Names of the old network only."""
    notes: list[str] = field(default_factory=list)
    """Warnings."""

    @classmethod
    def between(cls, name: str, old: Sequence[str], new: Sequence[str]) -> Part:
        in_old, in_new = set(old), set(new)
        return cls(
            name,
            carried=[word for word in new if word in in_old],
            new=[word for word in new if word not in in_old],
            left=[word for word in old if word not in in_new],
        )


@torch.no_grad()
def carry(old: Network, new: Network, was: Meaning, is_: Meaning) -> list[Part]:
    """Copies the weights of an old network into a new one; returns the outcome by part.

    Moments of covariates that both have are copied too: weights expect their inputs in those units.

    Args:
        old: trained.
        new: its covariates contain those of the old one.
        was: names of the old network's inputs.
        is_: names of the new network's inputs.

    Raises:
        ConfigError: weights differ in shape.
    """
    check_weights(old, new)
    _carry_layers(old, new)
    channels_carried = _carry_vectors(old, new, was, is_)
    before, now = _maps(old, was, channels_carried), _maps(new, is_, channels_carried)
    for name, (linear, keys) in now.items():
        _carry_columns(linear, keys, *before.get(name, (None, [])))
    notes = {kind: _carry_moments(old, new, kind, was, is_) for kind in KINDS}
    return _parts((old, new), (was, is_), channels_carried, notes)


def check_weights(old: Network, new: Network) -> None:
    """Checks that a new network can take the weights of an old one.

    Raises:
        ConfigError: layers differ in shape, or learned positions are too few.
    """
    source, faults = old.state_dict(), []
    for name, weight in _beyond_tables(new).items():
        carried = source.get(name)
        if carried is None or carried.shape != weight.shape:
            shape = "nothing" if carried is None else list(carried.shape)
            faults.append(
                f"--from: {name}: expected weights {list(weight.shape)}, found {shape} in the artifact"
            )
    was, tokens = old.embedding.time.learned, new.embedding
    if was is not None and tokens.time.learned is not None:
        context = old.embedding.context_tokens
        horizon = len(was) - context
        if tokens.context_tokens > context or tokens.horizon_tokens > horizon:
            faults.append(
                f"--from: learned positions of the artifact cover {context} + {horizon} tokens of context "
                f"and horizon, {tokens.context_tokens} + {tokens.horizon_tokens} are needed: take a "
                "shorter model.context_length or --horizon, or an artifact with other model.positions"
            )
    if faults:
        raise ConfigError("\n".join(faults))


def _beyond_tables(network: Network) -> dict[str, Tensor]:
    """Weights that read no table: layers, norms, head, embeddings of previous values."""
    # Of the embedding these alone; the rest of it is of a table, as scaler, experts and their weight are.
    shared = (
        "embedding.previous_patch",
        "embedding.values",
        "embedding.stem",
        "embedding.horizon_token",
    )
    of_table = ("embedding", "scaler", "experts", "network_weight")
    return {
        name: weight
        for name, weight in network.state_dict().items()
        if name.startswith(shared) or name.split(".")[0] not in of_table
    }


def _carry_layers(old: Network, new: Network) -> None:
    """Weights that read no table, and learned positions: from the cutoff back and from it on."""
    source = old.state_dict()
    for name, weight in _beyond_tables(new).items():
        weight.copy_(source[name])
    was, now = old.embedding.time.learned, new.embedding.time.learned
    if was is not None and now is not None:
        # Rows are the context's tokens, then the horizon's: the cutoff of both lies at the same one.
        cutoff, old_cutoff = new.embedding.context_tokens, old.embedding.context_tokens
        rows = min(len(was) - old_cutoff, len(now) - cutoff)
        now[: cutoff + rows] = was[old_cutoff - cutoff : old_cutoff + rows]


def _carry_vectors(old: Network, new: Network, was: Meaning, is_: Meaning) -> bool:
    """Embeddings of categories; returns whether those of channels were carried.

    New categories start as the unknown one, in all numbers of the old embedding.
    """
    for kind in KINDS:
        names = is_.categories[kind]
        for name, table in zip(names, _embedding(new, kind), strict=True):
            if name in was.categories[kind]:
                source = _embedding(old, kind)[was.categories[kind].index(name)]
                _carry_words(table, is_.words[name], source, was.words[name])
    theirs, ours = old.embedding.channel_embedding, new.embedding.channel_embedding
    if not len(theirs) or not len(ours):
        return False
    source, table = theirs[0], ours[0]
    if _width(table) < _width(source):
        return False
    _carry_words(table, is_.channels, source, was.channels)
    return True


def _carry_words(table: nn.Module, words: Names, source: nn.Module, known: Names) -> None:
    vectors, carried = table.weight, source.weight
    assert isinstance(vectors, Tensor) and isinstance(carried, Tensor)
    width = carried.shape[1]
    # 0 as the unknown word; further numbers of a wider embedding stay as drawn, for their columns are 0.
    vectors[:, :width] = 0.0
    codes = {word: code for code, word in enumerate(known, start=1)}
    for code, word in enumerate(words, start=1):
        if word in codes:
            vectors[code, :width] = carried[codes[word]]


def _embedding(network: Network, kind: str) -> nn.ModuleList:
    return getattr(network.embedding, f"{kind}_embedding")


def _width(table: nn.Module) -> int:
    assert isinstance(table, nn.Embedding)
    return table.embedding_dim


def _maps(
    network: Network, meaning: Meaning, channels_carried: bool
) -> dict[Key, tuple[nn.Linear, list[Key]]]:
    """Returns the linear maps that read a table, with a key for each of their columns.

    `channels_carried`: whether the channel embedding was carried, so that its columns match.
    """
    maps: dict[Key, tuple[nn.Linear, list[Key]]] = {}
    embedding, config = network.embedding, network.config
    as_channels, tokenized = config.channel_attention, config.tokenizes_values
    past, known, static = (list(_step(network, meaning, kind)) for kind in KINDS)
    gap: list[Key] = [] if network.shape.regular else [("gap",)]
    target: list[Key] = [] if tokenized else [("target", "value"), ("target", "observed")]
    # The order of `embed_context` and `embed_horizon`.
    in_context = target + gap if as_channels else target + past + known + gap
    in_horizon = gap if as_channels else known + gap
    if embedding.context_patch is not None:
        maps["context",] = embedding.context_patch, _of_patch(config.patch, in_context)
    if embedding.horizon_patch is not None:
        maps["horizon",] = embedding.horizon_patch, _of_patch(config.decoder_patch, in_horizon)
    if embedding.static is not None:
        size = sum(map(_width, embedding.channel_embedding))
        # Where they were not carried, no key of the other network matches.
        channel: list[Key] = [
            ("channel", n, "both" if channels_carried else id(network)) for n in range(size)
        ]
        maps["static",] = embedding.static, static + channel
    if embedding.time.phase is not None:
        waves = range(2 * HARMONICS)
        maps["phase",] = embedding.time.phase, list(product(meaning.cycles, waves))
    for span, module, kinds in (
        ("context", embedding.context_covariates, ("known", "past")),
        ("horizon", embedding.horizon_covariates, ("known",)),
    ):
        if not len(module):  # covariates are cells of the patches
            continue
        names = [(k, name) for k in kinds for name in meaning.numbers[k] + meaning.categories[k]]
        for (kind, name), linear in zip(names, module.maps, strict=True):
            assert isinstance(linear, nn.Linear)
            cells = linear.in_features // module.patch
            steps = _of_patch(module.patch, [(n,) for n in range(cells)])
            maps[span, kind, name] = linear, steps
    return maps


def _step(network: Network, meaning: Meaning, kind: str) -> Iterator[Key]:
    """Yields the keys of a step of covariates in the order of `Covariates.by_step`."""
    for cell, name in product(("value", "observed"), meaning.numbers[kind]):
        yield kind, name, cell
    for name, table in zip(meaning.categories[kind], _embedding(network, kind), strict=True):
        yield from ((kind, name, n) for n in range(_width(table)))


def _of_patch(size: int, cells: Sequence[Key]) -> list[Key]:
    return [(step, *cell) for step in range(size) for cell in cells]


def _carry_columns(
    linear: nn.Linear, keys: Sequence[Key], source: nn.Linear | None, known: Sequence[Key]
) -> None:
    assert len(keys) == linear.in_features
    # New columns read nothing at first: the first forecast is the old network's.
    linear.weight.zero_()
    if linear.bias is not None:
        linear.bias.zero_()
    if source is None:
        return
    source_column = {key: column for column, key in enumerate(known)}
    columns = [column for column, key in enumerate(keys) if key in source_column]
    source_columns = [source_column[keys[column]] for column in columns]
    linear.weight[:, columns] = source.weight[:, source_columns]
    if linear.bias is not None:
        linear.bias.copy_(source.bias)


def _carry_moments(old: Network, new: Network, kind: str, was: Meaning, is_: Meaning) -> list[str]:
    """Moments of covariates; returns warnings of those that differ much in the new table."""
    source = getattr(old.embedding, f"{kind}_scaler")
    scaler = getattr(new.embedding, f"{kind}_scaler")
    known, notes = was.numbers[kind], []
    for column, name in enumerate(is_.numbers[kind]):
        if name not in known:
            continue
        number = known.index(name)
        loc, scale = source.loc[number], source.scale[number]
        shift = float((scaler.loc[column] - loc) / scale)
        ratio = float(scaler.scale[column] / scale)
        if abs(shift) > _FAR or not 1 / _FAR < ratio < _FAR:
            notes.append(
                f"'{name}' lies {shift:+.1f} spreads from where the artifact's rows had it, its spread "
                f"is {ratio:.2g} of theirs; check that it has the same meaning and unit"
            )
        scaler.loc[column] = loc
        scaler.scale[column] = scale
    return notes


def _parts(
    networks: tuple[Network, Network],
    meanings: tuple[Meaning, Meaning],
    channels_carried: bool,
    notes: Mapping[str, list[str]],
) -> list[Part]:
    old, new = networks
    was, is_ = meanings
    config = new.config
    layers = [f"{config.encoder_layers} + {config.decoder_layers} layers", f"{config.head} head"]
    parts = [Part("network", carried=layers)]
    for kind in KINDS:
        before, now = (meaning.numbers[kind] + meaning.categories[kind] for meaning in meanings)
        part = Part.between(f"{kind} covariates", before, now)
        part.notes = list(notes[kind])
        if part.new and config.channel_attention and kind != "static":
            part.notes.append("other channels attend to the new ones: first forecasts change")
        parts.append(part)
        for name in was.categories[kind]:
            parts.append(Part.between(f"categories of {name}", was.words[name], is_.words[name]))
    theirs, ours = old.embedding.channel_embedding, new.embedding.channel_embedding
    if len(theirs) or len(ours):
        before = was.channels if len(theirs) else ()
        now = is_.channels if len(ours) else ()
        part = Part.between("channel embeddings", before, now)
        if not channels_carried:
            part = Part(part.name, new=list(now), left=list(before))
        if old.embedding.static is not None and new.embedding.static is None:
            part.notes.append("their bias is left too: first forecasts change")
        parts.append(part)
    parts.append(Part.between("cycles", was.cycles, is_.cycles))
    return [part for part in parts if part.carried or part.new or part.left]


class Adapted(nn.Module):
    """A frozen linear map plus a low-rank one that learns: W·x + up·down·x.

    Source: Hu et al., "LoRA: low-rank adaptation of large language models" (2021).
    """

    def __init__(self, linear: nn.Linear, rank: int):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)  # starts as the map itself

    def forward(self, numbers: Float[Tensor, "*B X"]) -> Float[Tensor, "*B Y"]:
        return self.linear(numbers) + self.up(self.down(numbers))

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Returns one plain map equal to both."""
        self.linear.weight += self.up.weight @ self.down.weight
        return self.linear


def freeze_encoder(network: Network) -> None:
    """Freezes the encoder's layers, its norm and the convolution stem.

    The embedding before them still learns: a new table may have new columns.
    """
    for part in (network.encoder, network.encoder_norm, network.embedding.stem):
        if part is not None:
            part.requires_grad_(False)


def adapt(network: Network, rank: int) -> None:
    """Adds adapters to the attention and feed-forward matrices that learn, and freezes these."""
    for part in list(network.modules()):
        if isinstance(part, MultiHeadAttention | FeedForward):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear) and linear.weight.requires_grad:
                    setattr(part, name, Adapted(linear, rank))


def merge(network: Network) -> None:
    """Merges every adapter into its matrix."""
    for part in list(network.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Adapted):
                setattr(part, name, child.merged())

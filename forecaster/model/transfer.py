"""Weights of one network into another, matched by what they mean.

What comes in: a trained network, a new one, and what their inputs are called. What goes out: the new
one with everything in it that the old one knew, and what was carried, what is new, what was left.
Promised: what is new starts at zero, so that the new network says what the old one would have said;
nothing is matched by shape alone, and what cannot be matched is refused, with the numbers.

A linear map that reads a table has a label per column, as (step of the patch, "past", "wind", "value"):
columns of one label are one. Vectors of categories and channels are matched by word. Layers, norms, the
head and all the rest have nothing to do with a table and are taken as they are.
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

Names = tuple[str, ...]
Label = tuple[object, ...]
KINDS = ("past", "known", "static")
_FAR = 3.0  # spreads, or ratio of spreads, from which a covariate may be another thing
_TABLES = (
    "context_patch",
    "horizon_patch",
    "about",
    "time",
    "context_covariates",
    "horizon_covariates",
)


@dataclass(frozen=True)
class Meaning:
    """What the inputs of a network are called."""

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
    """What became of one part of a network."""

    name: str
    """Of the part."""
    carried: list[str] = field(default_factory=list)
    """What came from the old network."""
    new: list[str] = field(default_factory=list)
    """What the old network had not."""
    left: list[str] = field(default_factory=list)
    """What only the old network had."""
    notes: list[str] = field(default_factory=list)
    """What to know of it."""

    @classmethod
    def between(cls, name: str, old: Sequence[str], new: Sequence[str]) -> Part:
        """Returns the part of names that two networks have."""
        had, has = set(old), set(new)
        return cls(
            name,
            [word for word in new if word in had],
            [word for word in new if word not in had],
            [word for word in old if word not in has],
        )


@torch.no_grad()
def carry(old: Network, new: Network, was: Meaning, is_: Meaning) -> list[Part]:
    """Puts the weights of an old network into a new one; returns what became of them.

    Moments of covariates that both have are carried too: weights know their inputs in those units.

    Args:
        old: trained.
        new: its covariates hold those of the old one, its categories the words of the old one.
        was: of the old network's inputs.
        is_: of the new network's inputs.

    Raises:
        ConfigError: weights differ in shape.
    """
    check_weights(old, new)
    _carry_layers(old, new)
    tells = _carry_vectors(old, new, was, is_)
    before, now = _maps(old, was, tells), _maps(new, is_, tells)
    for name, (linear, labels) in now.items():
        _carry_columns(linear, labels, *before.get(name, (None, [])))
    notes = {kind: _carry_moments(old, new, kind, was, is_) for kind in KINDS}
    return _parts((old, new), (was, is_), tells, notes)


def check_weights(old: Network, new: Network) -> None:
    """Refuses networks of which one cannot have the other's weights.

    Raises:
        ConfigError: layers differ in shape, or learned positions do not reach.
    """
    source, faults = old.state_dict(), []
    for name, weight in _beyond_tables(new).items():
        found = source.get(name)
        if found is None or found.shape != weight.shape:
            shape = "nothing" if found is None else list(found.shape)
            faults.append(
                f"--from: {name}: expected weights {list(weight.shape)}, found {shape} in the artifact"
            )
    was = old.time.learned
    if was is not None and new.time.learned is not None:
        back, ahead = old.context_tokens, len(was) - old.context_tokens
        if new.context_tokens > back or new.horizon_tokens > ahead:
            faults.append(
                f"--from: learned positions of the artifact cover {back} + {ahead} tokens of context "
                f"and horizon, {new.context_tokens} + {new.horizon_tokens} are wanted: take a shorter "
                "model.context_length or --horizon, or an artifact with other model.positions"
            )
    if faults:
        raise ConfigError("\n".join(faults))


def _beyond_tables(network: Network) -> dict[str, Tensor]:
    """All that reads no table: layers, norms, head, what tokens are told of values before them."""
    apart = {*_TABLES, "context_covariates", "horizon_covariates", "scaler", "channel_embedding"}
    apart |= {"linear", "network_weight"}  # solved and chosen for each table afresh
    apart |= {f"{kind}_{part}" for kind in KINDS for part in ("scaler", "embedding")}
    return {k: v for k, v in network.state_dict().items() if k.split(".")[0] not in apart}


def _carry_layers(old: Network, new: Network) -> None:
    """All that reads no table, and learned positions: from the cutoff back and from it on."""
    source = old.state_dict()
    for name, weight in _beyond_tables(new).items():
        weight.copy_(source[name])
    was, now = old.time.learned, new.time.learned
    if was is not None and now is not None:
        here, there = new.context_tokens, old.context_tokens
        rows = min(len(was) - there, len(now) - here)
        now[: here + rows] = was[there - here : there + rows]


def _carry_vectors(old: Network, new: Network, was: Meaning, is_: Meaning) -> bool:
    """Vectors of words; returns whether those of channels were carried.

    Further words start as the unknown one is, in all that the old vectors held.
    """
    for kind in KINDS:
        names = is_.categories[kind]
        for name, table in zip(names, _embedding(new, kind), strict=True):
            if name in was.categories[kind]:
                source = _embedding(old, kind)[was.categories[kind].index(name)]
                _carry_words(table, is_.words[name], source, was.words[name])
    if not len(old.channel_embedding) or not len(new.channel_embedding):
        return False
    source, table = old.channel_embedding[0], new.channel_embedding[0]
    if _width(table) < _width(source):
        return False
    _carry_words(table, is_.channels, source, was.channels)
    return True


def _carry_words(table: nn.Module, words: Names, source: nn.Module, known: Names) -> None:
    vectors, carried = table.weight, source.weight
    assert isinstance(vectors, Tensor) and isinstance(carried, Tensor)
    width = carried.shape[1]
    vectors[:, :width] = 0.0
    codes = {word: code for code, word in enumerate(known, start=1)}
    for code, word in enumerate(words, start=1):
        if word in codes:
            vectors[code, :width] = carried[codes[word]]


def _embedding(network: Network, kind: str) -> nn.ModuleList:
    found: nn.ModuleList = getattr(network, f"{kind}_embedding")
    return found


def _width(table: nn.Module) -> int:
    assert isinstance(table, nn.Embedding)
    return table.embedding_dim


def _maps(
    network: Network, meaning: Meaning, tells: bool
) -> dict[Label, tuple[nn.Linear, list[Label]]]:
    """Returns the linear maps that read a table, and what each column of theirs reads.

    Args:
        network: has them.
        meaning: of its inputs.
        tells: whether columns that tell channels apart mean what they mean in the other network.
    """
    maps: dict[Label, tuple[nn.Linear, list[Label]]] = {}
    apart, words = network.config.channel_attention, network.config.reads_words
    past, known, static = (list(_step(network, meaning, kind)) for kind in KINDS)
    gap: list[Label] = [] if network.shape.regular else [("gap",)]
    own: list[Label] = [] if words else [("target", "value"), ("target", "observed")]
    mixed = [] if apart else past + known
    if network.context_patch is not None:
        maps["context",] = network.context_patch, _of_patch(network.patch, own + mixed + gap)
    if network.horizon_patch is not None:
        ahead = gap if apart else known + gap
        maps["horizon",] = network.horizon_patch, _of_patch(network.decoder_patch, ahead)
    if network.about is not None:
        size = sum(map(_width, network.channel_embedding))
        # Where they mean something else, no label of the other network is theirs.
        channel: list[Label] = [("channel", n, "both" if tells else id(network)) for n in range(size)]
        maps["about",] = network.about, static + channel
    if network.time.phase is not None:
        waves = range(2 * network.config.harmonics)
        maps["phase",] = network.time.phase, list(product(meaning.cycles, waves))
    for span, module, kinds in (
        ("context", network.context_covariates, ("known", "past")),
        ("horizon", network.horizon_covariates, ("known",)),
    ):
        names = [(k, name) for k in kinds for name in meaning.numbers[k] + meaning.categories[k]]
        for (kind, name), linear in zip(names if len(module) else [], module.maps, strict=True):
            assert isinstance(linear, nn.Linear)
            cells = linear.in_features // module.patch
            steps = _of_patch(module.patch, [(n,) for n in range(cells)])
            maps[span, kind, name] = linear, steps
    return maps


def _step(network: Network, meaning: Meaning, kind: str) -> Iterator[Label]:
    """Yields what the columns of a step of covariates hold, as `Covariates.together` lays them."""
    for what, name in product(("value", "observed"), meaning.numbers[kind]):
        yield kind, name, what
    for name, table in zip(meaning.categories[kind], _embedding(network, kind), strict=True):
        yield from ((kind, name, n) for n in range(_width(table)))


def _of_patch(size: int, cells: Sequence[Label]) -> list[Label]:
    return [(step, *cell) for step in range(size) for cell in cells]


def _carry_columns(
    linear: nn.Linear, labels: Sequence[Label], source: nn.Linear | None, known: Sequence[Label]
) -> None:
    assert len(labels) == linear.in_features
    linear.weight.zero_()
    if linear.bias is not None:
        linear.bias.zero_()
    if source is None:
        return
    place = {label: column for column, label in enumerate(known)}
    here = [column for column, label in enumerate(labels) if label in place]
    linear.weight[:, here] = source.weight[:, [place[labels[column]] for column in here]]
    if linear.bias is not None:
        linear.bias.copy_(source.bias)


def _carry_moments(old: Network, new: Network, kind: str, was: Meaning, is_: Meaning) -> list[str]:
    """Moments of covariates; returns which of them are something else in the new table."""
    source, scaler = getattr(old, f"{kind}_scaler"), getattr(new, f"{kind}_scaler")
    known, notes = was.numbers[kind], []
    for column, name in enumerate(is_.numbers[kind]):
        if name not in known:
            continue
        at = known.index(name)
        shift = float((scaler.loc[column] - source.loc[at]) / source.scale[at])
        ratio = float(scaler.scale[column] / source.scale[at])
        if abs(shift) > _FAR or not 1 / _FAR < ratio < _FAR:
            notes.append(
                f"'{name}' lies {shift:+.1f} spreads from where the artifact's rows had it, its spread "
                f"is {ratio:.2g} of theirs; is it the same thing, in the same unit?"
            )
        scaler.loc[column], scaler.scale[column] = source.loc[at], source.scale[at]
    return notes


def _parts(
    networks: tuple[Network, Network],
    meanings: tuple[Meaning, Meaning],
    tells: bool,
    notes: Mapping[str, list[str]],
) -> list[Part]:
    (old, new), (was, is_), config = networks, meanings, networks[1].config
    layers = [f"{config.encoder_layers} + {config.decoder_layers} layers", f"{config.head} head"]
    parts = [Part("network", carried=layers)]
    for kind in KINDS:
        before, now = (meaning.numbers[kind] + meaning.categories[kind] for meaning in meanings)
        part = Part.between(f"{kind} covariates", before, now)
        part.notes = list(notes[kind])
        if part.new and config.channel_attention and kind != "static":
            part.notes.append("others attend to new channels too: first forecasts change")
        parts.append(part)
        for name in was.categories[kind]:
            parts.append(Part.between(f"words of {name}", was.words[name], is_.words[name]))
    if len(old.channel_embedding) or len(new.channel_embedding):
        before = was.channels if len(old.channel_embedding) else ()
        now = is_.channels if len(new.channel_embedding) else ()
        part = Part.between("channels told apart", before, now)
        if not tells:
            part = Part(part.name, new=list(now), left=list(before))
        if old.about is not None and new.about is None:
            part.notes.append("what all were told is left too: first forecasts change")
        parts.append(part)
    parts.append(Part.between("cycles", was.cycles, is_.cycles))
    return [part for part in parts if part.carried or part.new or part.left]


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

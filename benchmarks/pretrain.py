"""Learns the weights of attention over experts that come with the package.

    python benchmarks/pretrain.py --corpus FOLDER --gift FOLDER --league FOLDER --r FOLDER --m3 FOLDER \\
        --steps 6000 --resume FOLDER [--out WEIGHTS] [--only rows]

The folders are those of benchmarks/pretrain_tables.py: series that share values with a development table are
left out. FOLDER keeps the rows of each table (rows/), made once, and the newest checkpoint: a run that
was stopped goes on. What was learned from, and what came of it, is printed and written beside the weights.

A tenth of the sources, and the last seed of each made kind, are held out of the training and validated.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from pretrain_tables import add_folders, kept_series
from safetensors.torch import load_file, save_file
from stored_rows import commit

from forecaster.files import atomic_file
from forecaster.fitting.pretrain.corpus import RealSeries
from forecaster.fitting.pretrain.expert_rows import (
    CLOCKS,
    Clock,
    ExpertRows,
    from_tensors,
    joined,
    rows_of_table,
    to_tensors,
)
from forecaster.fitting.pretrain.learning import (
    ROWS,
    Pretrained,
    RowBatch,
    RowTable,
    batch_of,
    forecast,
    learn,
)
from forecaster.fitting.pretrain.synthetic import KINDS, SeriesShape, make_series
from forecaster.model.expert_attention import METHODS, ExpertAttention
from forecaster.model.shipped_weights import FILE, load_shipped, save

CHUNK, CHUNKS, LONGEST = 80, 4, 4_000
"""Series of a table, tables of a source at a step, and last steps of a series, at most."""
MOST = 700
"""Rows of a table, at most."""
SEEDS = 3
"""Of each made kind at each clock; the last is held out."""
MADE_CLOCKS = (
    Clock("Y", 1, 0, (5,)),
    Clock("Q", 4, 0, (8,)),
    Clock("M", 12, 0, (12,)),
    Clock("W", 52, 0, (8,)),
    Clock("D", 7, 0, (14,)),
    Clock("D", 7, 365, (30,)),
    Clock("h", 24, 168, (24,)),
    Clock("30min", 48, 0, (48,)),
    Clock("15min", 96, 0, (48,)),
    Clock("10min", 144, 0, (48,)),
    Clock("5min", 288, 0, (96,)),
)
LONG_CLOCKS = (
    Clock("D", 7, 365, (180,)),
    Clock("h", 24, 168, (720,)),
    Clock("10min", 144, 0, (480,)),
)
"""Of made tables with a long horizon, one of each kind."""
# Of other steps six seasons; four horizons at least.
MADE_LENGTHS = {"Y": 45, "Q": 70, "M": 160, "W": 260, "D": 500, "h": 800}
MADE = 40
"""Series of a made table."""
HELD_OUT = 10
"""One source in so many."""


@dataclass(frozen=True)
class Table:
    """Series of one source and step, or of one made kind, and how far ahead they are forecast."""

    name: str
    source: str
    clock: Clock
    horizon: int
    held_out: bool
    real: bool
    series: Callable[[], Sequence[RealSeries]]


def main() -> None:
    """Makes rows, trains, and writes the weights."""
    parser = argparse.ArgumentParser(description="weights of attention over experts")
    add_folders(parser)
    parser.add_argument("--resume", type=Path, required=True, help="folder of rows and checkpoint")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="weights to go on from; else random ones")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--only", choices=["rows"])
    arguments = parser.parse_args()
    kept, counts = kept_series(arguments)
    tables = [*real_tables(kept), *made_tables()]
    stored = store_rows(tables, arguments.resume / "rows")
    if arguments.only:
        return
    rows, places, held_out = read_rows(tables, stored)
    start = None
    if arguments.start:
        start = ExpertAttention(METHODS)
        load_shipped(start, arguments.start)
    folder, steps, seed = arguments.resume, arguments.steps, arguments.seed
    learner = learn(rows, places, held_out, steps, folder, seed, start)
    attention = learner.average.attention
    with torch.no_grad():
        # No row has `arx`, which corrects the linear expert: it takes that one's token.
        embedding = attention.method.weight
        embedding[METHODS.index("arx")] = embedding[METHODS.index("linear")]
    save(attention, arguments.out)
    report = card(attention, held_out, counts, places, arguments)
    print(report)
    with atomic_file(arguments.out.with_suffix(".md")) as path:
        path.write_text(report, encoding="utf-8")


def real_tables(series: Sequence[RealSeries]) -> Iterator[Table]:
    """Yields the tables of the corpus: chunks of each source, at one of its horizons in turn."""
    by_source: dict[tuple[str, str, str], list[RealSeries]] = {}
    for one in series:
        dates = "undated" if one.start is None else "dated"
        by_source.setdefault((one.source, one.step, dates), []).append(one)
    for (source, step, dates), members in sorted(by_source.items()):
        clock = CLOCKS[step]
        chunks = [members[start : start + CHUNK] for start in range(0, len(members), CHUNK)][:CHUNKS]
        held_out = int(hashlib.sha256(source.encode()).hexdigest(), 16) % HELD_OUT == 0
        for number, chunk in enumerate(chunks):
            horizons = [
                horizon
                for turn, horizon in enumerate(clock.horizons)
                if len(chunks) == 1 or (turn - number) % len(clock.horizons) == 0
            ]
            if number == 0:
                horizons += clock.long
            for horizon in horizons:
                name = f"{source}-{step}-{dates}-{number}-{horizon}".replace("/", "_").replace(" ", "_")
                yield Table(
                    name, source, clock, horizon, held_out, real=True, series=partial(cut, chunk)
                )


def cut(series: Sequence[RealSeries]) -> list[RealSeries]:
    """The last steps of long series; without what is empty at both ends."""
    found = []
    for one in series:
        seen = np.flatnonzero(np.isfinite(one.values))
        if not len(seen):
            continue
        begin = max(seen[0], seen[-1] + 1 - LONGEST)
        start = None
        if one.start is not None and begin == 0:
            start = one.start
        found.append(
            RealSeries(one.source, one.name, one.step, one.values[begin : seen[-1] + 1], start)
        )
    return found


def made_tables() -> Iterator[Table]:
    """Yields tables of each made kind at each clock that suits it."""
    for kind, about in sorted(KINDS.items()):
        for place, clock in enumerate(MADE_CLOCKS):
            if about.seasonal and clock.season == 1:
                continue
            for seed in range(SEEDS if clock.step in MADE_LENGTHS else 1):
                held_out = seed == SEEDS - 1 and place % 2 == 0
                yield made_table(f"made-{kind}-{clock.step}{clock.second}", kind, clock, seed, held_out)
        for clock in LONG_CLOCKS:
            yield made_table(f"made-{kind}-{clock.step}-long", kind, clock, 0, held_out=False)


def made_table(name: str, kind: str, clock: Clock, seed: int, held_out: bool) -> Table:
    """Returns a table of a made kind."""
    return Table(
        name=f"{name}-{seed}",
        source=kind,
        clock=clock,
        horizon=clock.horizons[0],
        held_out=held_out,
        real=False,
        series=partial(made, kind, clock, seed),
    )


def made(kind: str, clock: Clock, seed: int) -> list[RealSeries]:
    """Series of a made kind, of unlike lengths."""
    length = MADE_LENGTHS.get(clock.step, 6 * clock.season) if clock.second != 365 else 900
    length = max(length, 4 * clock.horizons[0])
    shape = SeriesShape(MADE, length, clock.season, clock.second)
    values = make_series(kind, shape, seed)
    shortest = max(clock.horizons[0] * 3, 2 * clock.season, 12)
    random = np.random.default_rng(seed)
    lengths = np.exp(random.uniform(np.log(shortest), np.log(length), MADE)).astype(int)
    return [
        RealSeries(kind, str(number), clock.step, row[-steps:], None)
        for number, (row, steps) in enumerate(zip(values, lengths, strict=True))
    ]


def store_rows(tables: Sequence[Table], folder: Path) -> dict[str, Path]:
    """Makes the rows of tables that have none yet, and returns the files of those that have some."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {table.name: folder / f"{table.name}.safetensors" for table in tables}
    missing = [table for table in tables if not files[table.name].exists()]
    # Forked, polars would wait for threads that are not there.
    context = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=_one_thread) as workers:
        jobs = {
            workers.submit(_store, files[table.name], table.series(), table.clock, table.horizon): table
            for table in missing
        }
        for number, job in enumerate(as_completed(jobs), start=1):
            print(f"{number:,} of {len(jobs):,}: {jobs[job].name}: {job.result():,} rows", flush=True)
    return {name: file for name, file in files.items() if file.stat().st_size}


def _one_thread() -> None:
    torch.set_num_threads(1)


def _store(file: Path, series: Sequence[RealSeries], clock: Clock, horizon: int) -> int:
    """Writes the rows of a table; an empty file where no window can be cut."""
    rows = rows_of_table(series, clock, horizon, MOST, seed=len(file.stem)) if series else None
    with atomic_file(file) as path:
        if rows is None:
            path.touch()
        else:
            save_file({name: part.contiguous() for name, part in to_tensors(rows).items()}, path)
    return 0 if rows is None else len(rows.truth)


def read_rows(
    tables: Sequence[Table], files: dict[str, Path]
) -> tuple[ExpertRows, list[RowTable], list[RowBatch]]:
    """Returns the rows that train, where each table's are, and batches of those held out."""
    parts, places, held_out = [], [], []
    first = 0
    for table in tables:
        if table.name not in files:
            continue
        rows = from_tensors(load_file(files[table.name]))
        count = len(rows.truth)
        if table.held_out:
            some = np.linspace(0, count - 1, min(count, ROWS)).astype(np.int64)
            held_out.append(batch_of(rows, some, np.zeros(len(some), np.int64)))
            continue
        where = range(first, first + count)
        places.append(RowTable(table.name, table.source, table.clock.step, table.real, where))
        parts.append(rows)
        first += count
    return joined(parts), places, held_out


@torch.no_grad()
def card(
    attention: ExpertAttention,
    held_out: Sequence[RowBatch],
    counts: str,
    places: Sequence[RowTable],
    arguments: argparse.Namespace,
) -> str:
    """Returns the card of the weights: data, seed, steps, commit, and figures on what was held out."""
    untrained = Pretrained()
    trained = Pretrained()
    trained.attention = attention
    levels = (0.95, 0.975, 0.99, 0.995, 0.999)
    ratios, inside, reaches = [], [], []
    for batch in held_out:
        # The same cells: the ratio of sums is that of means.
        loss, before = (float(model.losses(batch)[0].sum()) for model in (trained, untrained))
        ratios.append(loss / before)
        quantiles, truth = forecast(attention, batch.rows.evidence), batch.rows.truth
        known = ~truth.isnan()
        within = (truth >= quantiles[..., 0]) & (truth <= quantiles[..., -1])
        inside.append(float(within[known].float().mean()))
        if batch.rows.evidence.counts.any():  # their tails follow from their means
            continue
        beyond = []
        for side, sign in ((-1, 1.0), (0, -1.0)):
            reach = (quantiles[..., side] - quantiles[..., 4]) * sign
            far = (truth - quantiles[..., side]) * sign / reach.clamp(min=1e-6)
            beyond.append(far[known])
        reaches.append(np.quantile(torch.cat(beyond).numpy(), levels))
    middle = np.median(reaches, axis=0)  # a few tables have tails of fifty
    tail = dict(zip(levels, middle.round(3).tolist(), strict=True))
    rows = sum(len(place.rows) for place in places)
    real = [place for place in places if place.real]
    options = f"--steps {arguments.steps} --seed {arguments.seed}"
    if arguments.start:
        options += f" --start {arguments.start.name}"
    return "\n".join(
        [
            "# Weights of attention over experts, version 2",
            "",
            f"Learned by `python benchmarks/pretrain.py {options}` from "
            f"{rows:,} rows of {len(places)} tables: {len(real)} of {len({p.source for p in real})} real",
            f"sources (two draws of three) and {len(places) - len(real)} made ones "
            "(`forecaster/fitting/pretrain/synthetic.py`).",
            f"Commit {commit()}. {counts}",
            "",
            f"On {len(held_out)} tables held out: pinball {np.exp(np.mean(np.log(ratios))):.3f} of that of the",
            f"untrained network (geometric mean), the 80 % band holds {100 * np.mean(inside):.1f} %.",
            "Tail beyond the outermost quantile, in distances of it from the median, of the table in the middle: "
            f"{tail}.",
            "",
            "Sources: " + ", ".join(sorted({place.source for place in real})) + ".",
            "",
        ]
    )


if __name__ == "__main__":
    main()

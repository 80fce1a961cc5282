"""Hierarchies of series: which of them each node adds up, and the panel of the sums.

    State/Region            each Region lies in one State
    State/Region*Purpose    (State/Region) × Purpose: `/` binds tighter than `*`
    child,parent            a table, over one key column: a child has one parent, and levels have no names

Axes: R inner node · N series, the leaves · T time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from forecaster.errors import ConfigError, DataError
from forecaster.panel.arrays import Bools, Codes, Floats, Ints
from forecaster.panel.findings import Finding, check_paths, did_you_mean, listing, refuse_errors
from forecaster.panel.frames import TABLE_NAME, missing_columns, read_table
from forecaster.panel.groups import check_alike, check_results, static_of
from forecaster.panel.names import common, without
from forecaster.panel.panel import MISSING, NO_TIME, Panel

Nests = tuple[tuple[str, ...], ...]
"""Columns of each factor of a product, the outermost first."""
NODE_LEVEL, TOTAL = "node_level", "total"
_RESULTS = ("cutoff", "lead", "channel", NODE_LEVEL, "forecast", "mean", "status")
_SEEN = 0.9  # share of the leaves of a sum that must have a value, of those that have begun


Method = Literal["mint", "wls", "bottom-up"]


@dataclass(frozen=True)
class HierarchyRequest:
    """Which sums are forecast, and how they are reconciled."""

    spec: Nests | object
    """Columns, or a table of children and parents."""
    method: Method | None
    """None = by the number of nodes."""

    @classmethod
    def of(cls, hierarchy: object, reconcile: str | None) -> HierarchyRequest:
        """Returns the request of options as a caller gives them.

        Raises:
            ConfigError: the hierarchy is not written as one, or there is no such method.
            DataError: there is no such file.
        """
        method: Any = reconcile
        if method not in (None, *get_args(Method)):
            raise ConfigError(f"--reconcile {method}: expected {', '.join(get_args(Method))}")
        if isinstance(hierarchy, str) and not _is_file(hierarchy):
            return cls(parse_nests(hierarchy), method)
        check_paths(hierarchy)
        return cls(hierarchy, method)

    def tree(self, panel: Panel) -> Tree:
        """Returns the hierarchy of a panel; raises as `tree_of`."""
        return tree_of(panel, self.spec)

    def check(self, panel: Panel, findings: Sequence[Finding], cutoffs: Ints | None = None) -> None:
        """Raises as `tree`, and a DataError where series have unlike steps or cutoffs; None = they are common."""
        self.tree(panel)
        check_alike(panel, findings, "--hierarchy")
        if cutoffs is not None:
            common_cutoff(panel, cutoffs)


def _is_file(text: str) -> bool:
    return bool(TABLE_NAME.search(text)) or Path(text).is_file()


def common_cutoff(panel: Panel, cutoffs: Ints) -> int:
    """Returns the time of the cutoff of all series with one.

    Raises:
        DataError: they differ; leads of one number would be of different times.
    """
    placed = np.unique(cutoffs[cutoffs != NO_TIME])
    if len(placed) > 1:
        first, last = map(panel.calendar.text, placed[[0, -1]])
        raise DataError(
            f"{panel.name}: --hierarchy needs one cutoff, found series that end from {first} to {last}; give "
            "--cutoff last"
        )
    return int(placed[0]) if len(placed) else NO_TIME


@dataclass(frozen=True)
class Tree:
    """The nodes of a hierarchy: inner ones from the total down, then every series as a leaf."""

    keys: pl.DataFrame
    """[R + N] key columns and further ones of the hierarchy; null where a node adds up over a column."""
    levels: tuple[str, ...]
    """[R + N] name of the level of each node."""
    sums: csr_array
    """[R, N] 1 where a node adds up a series."""


def parse_nests(text: str) -> Nests:
    """Returns the columns of a hierarchy as written, State/Region*Purpose.

    Raises:
        ConfigError: a name is missing, or there twice.
    """
    nests = tuple(tuple(name.strip() for name in nest.split("/")) for nest in text.split("*"))
    names = [*chain(*nests)]
    if not all(names) or len({*names}) < len(names):
        raise ConfigError(
            f"--hierarchy {text!r}: expected columns, each once, as State/Region or State/Region*Purpose; or "
            "a table with the columns child and parent"
        )
    return nests


def tree_of(panel: Panel, spec: Nests | object) -> Tree:
    """Returns the hierarchy of the series of a panel.

    Args:
        panel: of the series.
        spec: columns; or a table of children and their parents.

    Raises:
        ConfigError: a column is no key column and no static covariate, or series have no names.
        DataError: a node has two parents, is its own ancestor, or has no series; a series has no place; a column
            is named like one of the result; or rows lie on no common grid.
    """
    if panel.schema.pivots or not panel.keys.width:
        raise ConfigError(
            f"{panel.name}: --hierarchy adds up series, but these are channels of one; fit with --layout long"
        )
    if not panel.regular:
        raise DataError(f"{panel.name}: --hierarchy needs rows on a grid; pass --freq, or --resample")
    keys = panel.keys
    named = [*chain(*spec)] if isinstance(spec, tuple) else []
    check_results(panel, _RESULTS, "--hierarchy", named)
    if isinstance(spec, tuple):
        frame, nests = _with_statics(panel, spec), spec
        _check_nested(frame, nests, panel.name)
    else:
        chains = _chains(panel, spec)
        above = [pl.Series(f"level_{n}", names) for n, names in enumerate(zip_longest(*chains), 1)]
        levels = [column.name for column in above]
        check_results(panel, levels, "--hierarchy with a table")
        frame, nests = keys.with_columns(above), ((*levels, *keys.columns),)
    return _tree(frame, nests, keys.columns)


def _tree(frame: pl.DataFrame, nests: Nests, keys: Sequence[str]) -> Tree:
    """The nodes over a row per series."""
    n, finest = frame.height, tuple(len(nest) for nest in nests)
    parts, levels, rows = list[pl.DataFrame](), list[str](), list[Ints]()
    leaf = " × ".join(keys)
    for depths in sorted(product(*(range(most + 1) for most in finest)), key=sum):
        names = [name for nest, depth in zip(nests, depths, strict=True) for name in nest[:depth]]
        deepest = [nest[depth - 1] for nest, depth in zip(nests, depths, strict=True) if depth]
        places: dict[tuple[Any, ...], int] = {}
        number = np.full(n, -1)
        for place, row in enumerate(frame.select(names).rows() if names else [()] * n):
            if not row or row[-1] is not None:  # a branch of a table may be shorter than others
                number[place] = places.setdefault(row, len(places))
        level = " × ".join(deepest) or TOTAL
        if depths == finest and len(places) == n:
            leaf = level
            continue
        first = np.unique(number[number >= 0], return_index=True)[1]
        first = np.flatnonzero(number >= 0)[first]
        empty = [
            pl.lit(None, dtype).alias(name) for name, dtype in frame.schema.items() if name not in names
        ]
        parts.append(frame[first].with_columns(empty))
        rows.append(np.where(number < 0, -1, number + len(levels)))
        levels += [level] * len(places)
    node, series = np.concatenate(rows), np.tile(np.arange(n), len(rows))
    chosen = node >= 0
    ones = np.ones(int(chosen.sum()))
    sums = csr_array((ones, (node[chosen], series[chosen])), shape=(len(levels), n))
    return Tree(pl.concat([*parts, frame]), (*levels, *[leaf] * n), sums)


def _with_statics(panel: Panel, nests: Nests) -> pl.DataFrame:
    """The key columns, and the static covariates of a hierarchy, a row per series."""
    frame, statics = panel.keys, panel.schema.static
    for name in without(chain(*nests), frame.columns):
        if name not in statics:
            known = [*panel.keys.columns, *statics]
            raise ConfigError(
                f"{panel.name}: --hierarchy: expected key columns or static covariates ({', '.join(known)}), found "
                f"{name}{did_you_mean(name, known)}"
            )
        column = static_of(panel, name, "--hierarchy")
        if column.has_nulls():
            series = panel.series_names[int(column.is_null().arg_max() or 0)]
            raise DataError(
                f"{panel.name}: --hierarchy: '{name}' is empty for series {series}; fill it in, or leave out {name}"
            )
        frame = frame.with_columns(column)
    return frame


def _check_nested(frame: pl.DataFrame, nests: Nests, table: str) -> None:
    for nest in nests:
        for depth in range(1, len(nest)):
            parents, child = nest[:depth], nest[depth]
            pairs = frame.select(*parents, child).unique(maintain_order=True)
            twice = pairs.filter(pairs[child].is_duplicated())
            if twice.height:
                name = twice[child][0]
                found = twice.filter(twice[child] == name).select(parents[-1]).to_series()
                raise DataError(
                    f"{table}: --hierarchy: {child} '{name}' lies in {parents[-1]} "
                    f"{listing([*map(str, found)], 3)}; expected one parent: cross them, {parents[-1]}*{child}, "
                    "or rename"
                )


def _chains(panel: Panel, source: object) -> list[list[str]]:
    """The ancestors of each series below the total, the outermost first."""
    table = read_table(source)
    refuse_errors(missing_columns(["child", "parent"], table.frame.columns, table.name, "hierarchy"))
    frame = table.with_ids(["child", "parent"]).frame.select(pl.col("child", "parent").cast(pl.String))
    frame = frame.drop_nulls("parent").unique(maintain_order=True)  # a row without a parent: the top
    if panel.keys.width > 1:
        raise ConfigError(
            f"{table.name}: a table of children is over one key column, found {', '.join(panel.keys.columns)}; "
            "name the columns, as State/Region"
        )
    if (twice := frame.filter(frame["child"].is_duplicated())).height:
        name = twice["child"][0]
        found = twice.filter(twice["child"] == name)["parent"].to_list()
        raise DataError(f"{table.name}: '{name}' has the parents {listing(found, 3)}; expected one")
    parents = dict(frame.rows())
    series, inner = {*panel.series_names}, {*parents.values()}
    if idle := without(parents, series | inner):
        near = did_you_mean(idle[0], panel.series_names)
        raise DataError(
            f"{table.name}: '{idle[0]}' has no series in {panel.name} and no children{near}"
        )
    if both := common(panel.series_names, inner):
        raise DataError(
            f"{table.name}: '{both[0]}' is a series of {panel.name} and has children; expected one of both"
        )
    if lone := without(panel.series_names, parents):
        raise DataError(
            f"{table.name}: series {listing(lone, 3)} of {panel.name}: no row; give each its parent"
        )
    ancestors = {name: _ancestors(name, parents, table.name) for name in parents}
    one_root = len({above[0] for above in ancestors.values()}) == 1
    return [ancestors[name][one_root:] for name in panel.series_names]


def _ancestors(name: str, parents: dict[str, str], table: str) -> list[str]:
    """Returns the nodes above a node, the outermost first."""
    found = [name]
    while found[-1] in parents:
        above = parents[found[-1]]
        if above in found:
            cycle = " in ".join([*found[found.index(above) :], above])
            raise DataError(f"{table}: a cycle, {cycle}; expected one parent above")
        found.append(above)
    return found[:0:-1]


# Sums


def summed(panel: Panel, tree: Tree) -> Panel:
    """Returns the panel of the inner nodes.

    Targets are sums: a series counts from its first value on, and a gap as the value before it where 90 % of
    the series have one, else the sum is missing. Numbers of covariates are means, categories the most frequent.

    Raises:
        DataError: series lie on different grids.
    """
    grid, inner = _grid(panel), tree.sums.shape[0]
    values = np.full((inner, len(grid), panel.values.shape[1]), np.nan)
    codes = np.full((inner, len(grid), panel.codes.shape[1]), MISSING, np.int32)
    static_codes = np.full((inner, panel.static_codes.shape[1]), MISSING, np.int32)
    for column, of_row in enumerate(panel.values.T):
        target = column < panel.n_channels
        total, seen, begun = _added(panel, tree, grid, of_row, hold=target)
        enough = (seen > 0) & (seen >= _SEEN * begun - 1e-9 if target else True)
        values[..., column] = np.where(enough, total if target else total / np.maximum(seen, 1), np.nan)
    for column, of_row in enumerate(panel.codes.T):
        codes[..., column] = _most_frequent(
            of_row, lambda chosen: _added(panel, tree, grid, np.where(chosen, 1.0, np.nan))[1]
        )
    for column, of_series in enumerate(panel.static_codes.T):
        static_codes[:, column] = _most_frequent(of_series, lambda chosen: tree.sums @ chosen)
    total = tree.sums @ np.nan_to_num(panel.static)
    seen = tree.sums @ np.isfinite(panel.static)
    static = np.where(seen > 0, total / np.maximum(seen, 1), np.nan)
    whole = replace(
        panel,
        keys=tree.keys[:inner],
        values=values.reshape(-1, values.shape[2]),
        codes=codes.reshape(inner * len(grid), codes.shape[2]),
        time=np.tile(grid, inner),
        indptr=np.arange(inner + 1) * len(grid),
        static=static,
        static_codes=static_codes,
        n_new=0,
    )
    return whole.without_lead_in()


def stacked(above: Panel, below: Panel, keys: pl.DataFrame) -> Panel:
    """Returns the series of two panels as one panel with other key columns."""
    names = ("values", "codes", "time", "static", "static_codes")
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(above, name), getattr(below, name)]) for name in names
    }
    indptr = np.append(above.indptr, above.indptr[-1] + below.indptr[1:])
    return replace(below, keys=keys, indptr=indptr, n_new=0, **arrays)


def _grid(panel: Panel) -> Ints:
    """[T] the times of all series."""
    calendar, times = panel.calendar, np.unique(panel.time)
    if not len(times):
        return times
    anchor = calendar.anchors(times, np.array([0, len(times)]))[0]
    first, last = calendar.steps(anchor, times[[0, -1]])
    grid = calendar.shift(anchor, np.arange(first, last + 1))
    if (off := times[~np.isin(times, grid)]).size:
        series = panel.name_at((panel.time == off[0]).argmax())
        raise DataError(
            f"{panel.name}: --hierarchy adds up series at equal times; {calendar.text(off[0])} of series "
            f"{series} is off the steps of the others; bring them together with --resample"
        )
    return grid


def _added(
    panel: Panel, tree: Tree, grid: Ints, values: Floats, hold: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Returns [R, T] sums of values [row], of how many series they are, and how many have begun.

    `hold`: a gap counts as the value before it.
    """
    total, seen, begun = np.zeros((3, tree.sums.shape[0], len(grid)))
    columns = tree.sums.tocsc()
    for first, part in panel.parts():
        sums, begin = columns[:, first : first + part.n_series], int(panel.indptr[first])
        cells = np.full((part.n_series, len(grid)), np.nan)
        at = np.searchsorted(grid, part.time)
        cells[part.owner, at] = values[begin : begin + part.n_rows]
        real = ~np.isnan(cells)
        last = np.maximum.accumulate(np.where(real, np.arange(len(grid)), -1), axis=1)
        if hold:
            cells = np.take_along_axis(cells, np.maximum(last, 0), axis=1)
        total += sums @ np.nan_to_num(cells)
        seen += sums @ real.astype(np.float64)
        begun += sums @ (last >= 0).astype(np.float64)
    return total, seen, begun


def _most_frequent(codes: Codes, counted: Callable[[Bools], Floats]) -> Any:
    """The most frequent code per node; `counted` = how often chosen entries are in each."""
    best: Any = MISSING
    most: Any = 0.0
    for code in np.unique(codes[codes != MISSING]):
        count = counted(codes == code)
        best = np.where(count > most, code, best)
        most = np.maximum(most, count)
    return best

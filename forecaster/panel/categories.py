"""Categories of a panel in other codes: those of a model, or of the training rows alone.

Code 0 stands for a category that is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from forecaster.errors import DataError
from forecaster.panel.arrays import Codes, Ints, blocks, empty_beside, rows_before
from forecaster.panel.panel import MISSING, Panel


def with_categories(panel: Panel, end: Ints) -> Panel:
    """Returns the panel with categories limited to those of the training rows; others become 0.

    Args:
        panel: in any codes.
        end: int64 [series] first row after the training rows; static categories of a series count
            where it has training rows.
    """
    categories = dict(panel.schema.categories)
    names = panel.schema.code_columns
    counts = [np.zeros(len(categories[name]) + 2, np.int64) for name in names]
    for rows in rows_before(panel.indptr, end, panel.codes.shape[1]) if names else ():
        for k, count in enumerate(counts):
            count += np.bincount(panel.codes[rows, k] - MISSING, minlength=len(count))
    names += panel.schema.static_category
    trained = panel.static_codes[end > panel.indptr[:-1]]
    counts += [np.bincount(codes - MISSING, minlength=2) for codes in trained.T]
    for name, count in zip(names, counts, strict=True):
        seen = np.flatnonzero(count[1 - MISSING :])
        categories[name] = tuple(categories[name][code] for code in seen)
    return recoded(panel, categories)


def recoded(panel: Panel, categories: Mapping[str, tuple[str, ...]]) -> Panel:
    """Returns the panel in the codes of a model's categories; all others become 0."""

    def table(name: str) -> Codes:
        new = {word: code for code, word in enumerate(categories[name], start=1)}
        words = panel.schema.categories[name]
        return np.array([MISSING, 0, *(new.get(word, 0) for word in words)], np.int32)

    schema = panel.schema
    unmet = {
        name: tuple(word for word in schema.categories[name] if word not in set(categories[name]))
        for name in (*schema.code_columns, *schema.static_category)
    }
    return replace(
        panel,
        unmet=unmet,
        schema=replace(schema, categories=dict(categories)),
        codes=_translated(panel.codes, [*map(table, schema.code_columns)]),
        static_codes=_translated(panel.static_codes, [*map(table, schema.static_category)]),
    )


def _translated(codes: Codes, tables: list[Codes]) -> Codes:
    """Returns codes looked up in one table per column, whose first entry is for code -1."""
    result: Codes = empty_beside(codes, codes.shape, np.int32)
    for rows in blocks(*codes.shape):
        for k, table in enumerate(tables):
            place = codes[rows, k].astype(np.int64) + 1
            # Only in a store that was changed by hand.
            if place.min() < 0 or place.max() >= len(table):
                raise DataError(
                    f"damaged codes of categories: {place.max() - 1}, of {len(table) - 2}; "
                    "convert again"
                )
            result[rows, k] = table[place]
    return result

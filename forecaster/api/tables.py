"""A table alone: what is remarkable about it, and its form as a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from forecaster import options
from forecaster.config import config_from
from forecaster.options import DataOptions, Option, public
from forecaster.panel.findings import check_paths

if TYPE_CHECKING:
    from forecaster.panel.findings import Finding
    from forecaster.panel.panel import Panel
else:
    from forecaster.lazy import Panel


@public
def check(
    data: options.Table,
    horizon: Annotated[
        int | None,
        Option("Steps that will be forecast, to find series too short for it."),
    ] = None,
    *,
    future: options.Future = None,
    covariates: options.Covariates = None,
    **data_options: Unpack[DataOptions],
) -> "TableCheck":
    """Returns what is remarkable about a table, worst first, and the roles of its columns.

    Raises:
        DataError: the table cannot be understood at all.
    """
    from forecaster.panel.audit import check_panel
    from forecaster.panel.build import open_panel
    from forecaster.panel.findings import worst_first
    from forecaster.windows.cleaning import outliers_found

    reading = config_from(None, horizon, data_options).data
    panel = open_panel(data, reading, covariates=covariates, future=future)
    found = check_panel(panel, horizon)
    if panel.schema.label is None:
        season = panel.calendar.season_length
        found += outliers_found(panel, panel.indptr[1:], season)
    return TableCheck(worst_first(found), panel)


class TableCheck(list["Finding"]):
    """Findings on a table, worst first; printed as `forecaster check` prints them."""

    def __init__(self, findings: Sequence["Finding"], panel: "Panel"):
        super().__init__(findings)
        self.panel = panel

    def __repr__(self) -> str:
        from forecaster.runs.console import check_text

        return check_text(self.panel, self)

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column: time, series, target, known, past, static or ignored."""
        return {column: role for column, role, *_ in self.panel.schema.rows()}


@public
def convert(
    data: options.Table,
    store: Annotated[
        options.PathLike, Option("Folder for the panel store; it appears whole or not at all.")
    ],
    *,
    future: Annotated[
        object,
        Option("Table of the covariates known in advance; it has to fit in memory."),
    ] = None,
    covariates: Annotated[
        object, Option("Second table, joined on series and time; it has to fit in memory.")
    ] = None,
    overwrite: Annotated[bool, Option("Overwrite an existing store.")] = False,
    quiet: options.Quiet = False,
    **data_options: Unpack[DataOptions],
) -> "Panel":
    """Writes a table of any size to a folder that `fit`, `predict`, `backtest` and `check` read.

    Raises:
        DataError: the table cannot be understood.
        OutputError: the folder exists, or the disk is full.

    Example:
        >>> convert("sales/*.parquet", "sales.store", known=["price"])   # doctest: +SKIP
    """
    from forecaster.panel.convert import convert_table
    from forecaster.runs.console import Screen, progress_bar

    check_paths(data, future, covariates)
    console, folder = Screen(quiet=quiet), Path(store)
    with progress_bar(console) as bar:
        task = bar.add_task("converting", total=None)
        panel = convert_table(
            data,
            folder,
            config_from(None, None, data_options).data,
            covariates=covariates,
            future=future,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            overwrite=overwrite,
        )
    console.print_roles(panel)
    console.print_findings(panel.notes)
    size = sum(file.stat().st_size for file in folder.iterdir())
    console.print_line(f"wrote {folder} ({size / 1e6:,.1f} MB)")
    return panel

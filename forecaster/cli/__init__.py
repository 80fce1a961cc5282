"""The command line: one file per verb, no arithmetic.

Exit codes: 0; 2 with one line per fault the user can mend; 3 where `monitor` finds a model broken; 130 after
Ctrl-C; 143 after SIGTERM. With `--json` standard output is one document (`cli.document`), and all else goes to
standard error.
Start-up imports typer alone: neither pydantic nor rich.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import nullcontext, redirect_stdout, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from forecaster import __version__
from forecaster.cli import document
from forecaster.cli.interrupt import Interrupt
from forecaster.errors import visible

VERBS = {
    "check": "Show the role of every column, and what may go wrong.",
    "convert": "Write a table of any size to a folder that the other verbs read instead.",
    "config": "Print all settings with their values and descriptions, as YAML.",
    "fit": "Fit a model to a table.",
    "update": "Update a model with the rows that came after its fit.",
    "predict": "Forecast every series of a table.",
    "monitor": "Compare the forecasts of a model with the truth that has come since its fit.",
    "backtest": "Score a model at past cutoffs, beside baselines.",
    "tune": "Search for better settings than those of a config.",
    "detect": "Mark the values outside the band that was forecast one step before them.",
    "explain": "Show the attention weights of one forecast, and which inputs change it.",
    "export": "Register a model in MLflow, or write it as an ONNX file.",
    "mcp": "Serve check, predict, backtest and explain as tools to a client of the Model Context Protocol.",
    "runs": "List recorded runs, or copy local ones to their store.",
    "ui": "Serve MLflow's pages on a store, to this machine alone, until Ctrl-C.",
    "demo": "Fit, forecast and score the demo data.",
}
_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class _Verbs(TyperGroup):
    """Verbs whose options are built when they are called: `--help` lists verbs alone."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in VERBS:
            self.commands[args[0]] = load_verb(args[0])
        return super().resolve_command(ctx, args)


def load_verb(name: str) -> Any:
    """Returns the command of a verb with its options."""
    module = importlib.import_module(f"forecaster.cli.{name}")
    part = typer.Typer(**_SETTINGS)
    part.callback()(lambda: None)  # for a group, even of one verb
    if hasattr(module, "app"):
        part.add_typer(module.app, name=name)
    else:
        part.command(name)(getattr(module, name))
    command = typer.main.get_command(part).commands[name]  # type: ignore[attr-defined]
    for one in (command, *getattr(command, "commands", {}).values()):
        one.params.append(_json_option())
    return command


def _json_option() -> Any:
    """Returns the option that every verb has; `main` acts on it before options are parsed."""
    part = typer.Typer(**_SETTINGS)
    part.command()(_with_json)
    return typer.main.get_command(part).params[0]


def _with_json(
    as_json: Annotated[
        bool,
        typer.Option(
            document.OPTION,
            expose_value=False,
            help="Print one JSON document; all else goes to standard error.",
        ),
    ] = False,
) -> None:
    """Has the option."""


app = typer.Typer(name="forecaster", cls=_Verbs, **_SETTINGS | {"add_completion": True})
for _name, _help in VERBS.items():
    app.command(_name, help=_help)(lambda: None)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forecaster {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Attention forecasts for any table of time series."""


def main() -> None:
    """Runs the command line and leaves with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or a notebook's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with Interrupt() as interrupt:
        try:
            code = _run(interrupt)
        except KeyboardInterrupt:
            code = 130
        with suppress(OSError):
            _flush_output()
    # Libraries swallow Ctrl-C now and then; the exit code is 130 all the same.
    sys.exit(130 if interrupt.came else code)


def _run(interrupt: Interrupt) -> int:
    """Runs a verb and returns its exit code; prints its document, or one line per fault."""
    as_json = document.wanted()
    # Of the machines and devices that torchrun has started, one prints.
    prints = as_json and os.environ.get("RANK", "0") == "0"
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            answer = document.answered(app)
        then = answer.pop("then", None)
        if prints:
            typer.echo(document.text(answer))
        _flush_output()
        if then is not None:
            then()
        code: int = answer["exit_code"]
        return code
    except typer.Abort:
        return 130
    except Exception as error:
        if interrupt.came:  # the fault is a consequence of Ctrl-C
            return 2
        failure = document.failed(error)
        if getattr(error, "reported_elsewhere", False):
            return 2
        if prints:
            with suppress(OSError):
                typer.echo(document.text(failure))
        fault = failure["error"]
        if fault["code"] == "bug":
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(fault["message"], err=True)
            return 2
        for line in visible(fault["message"]).splitlines():
            typer.echo(f"error: {line}", err=True)
        return 2


def _flush_output() -> None:
    """Writes out standard output; one that is closed or full is replaced, and raises OSError."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        # Else the interpreter flushes again at exit, and prints a traceback.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise

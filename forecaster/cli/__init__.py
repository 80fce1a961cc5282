"""The shell's face: one file per verb, no arithmetic.

What comes in: arguments. What goes out: an exit code — 0, or 2 with one line for what the user can
mend, 130 after Ctrl-C, or 143 after SIGTERM. Start-up imports typer and pydantic only.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from forecaster import __version__
from forecaster.cli import (
    backtest,
    check,
    config,
    convert,
    demo,
    detect,
    explain,
    export,
    fit,
    predict,
    runs,
    streams,
    tune,
    ui,
)
from forecaster.cli.interrupt import Interrupt
from forecaster.errors import ForecasterError

app = typer.Typer(
    name="forecaster",
    help="Attention forecasts for any table of time series.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("check")(check.check)
app.command("convert")(convert.convert)
app.command("config")(config.config)
app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.command("backtest")(backtest.backtest)
app.command("tune")(tune.tune)
app.command("detect")(detect.detect)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.add_typer(runs.app, name="runs")
app.command("ui")(ui.ui)
app.command("demo")(demo.demo)


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
    signal.signal(signal.SIGTERM, _terminated)
    _give_memory_back()
    streams.take_any_text()
    with Interrupt() as interrupt:
        try:
            code = _run(interrupt)
            with suppress(OSError):
                streams.flush_output()
        except KeyboardInterrupt:
            code = 130
    # Libraries swallow it now and then; whoever pressed Ctrl-C hears that it was heard.
    sys.exit(130 if interrupt.came else code)


def _run(interrupt: Interrupt) -> int:
    """Runs a verb and returns its exit code; says in a line what went wrong."""
    try:
        code = app(standalone_mode=False)
        streams.flush_output()
    except ForecasterError as error:
        return 130 if interrupt.came else _refuse("" if error.told_elsewhere else str(error))
    except typer.Abort:
        return 130
    except OSError as error:  # what no verb foresaw: a full pipe, a folder that went away
        return 130 if interrupt.came else _refuse(streams.told(error))
    except MemoryError as error:
        return _refuse(f"out of memory: {str(error) or 'free some, or give less data at a time'}")
    except Exception as error:
        # Usage errors of the parser, whichever library raised them: they can format themselves.
        formatted = getattr(error, "format_message", None)
        if interrupt.came:
            return 130
        if formatted is None:
            raise
        if type(error).__name__ != "NoArgsIsHelpError":
            return _refuse(formatted())
        typer.echo(formatted(), err=True)
        return 2
    return code or 0


def _give_memory_back() -> None:
    """Lets polars return freed memory to the system at once; by default it keeps it for a while.

    What is read of a large file is freed just before arrays as large are made, elsewhere. The last of
    several settings holds: a parent process that uses polars hands down its own.
    """
    name = "_RJEM_MALLOC_CONF"
    settings = (os.environ.get(name), "dirty_decay_ms:0,muzzy_decay_ms:0")
    os.environ[name] = ",".join(filter(None, settings))


def _terminated(number: int, frame: object) -> None:
    """Lets work be wound up; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def _refuse(message: str) -> int:
    for line in message.splitlines():
        typer.echo(f"error: {line}", err=True)
    return 2

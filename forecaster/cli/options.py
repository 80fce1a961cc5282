"""Flags of the verbs, made of the options that the Python interface declares."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from forecaster.api import shell_command
from forecaster.arguments import kinds_in
from forecaster.cli import document
from forecaster.options import Option, data_options, options_of
from forecaster.panel.findings import Finding, printed_findings

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder written by forecaster fit, or models:/NAME@champion."),
]
ModelOrTable = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|DATA",
        help="Folder written by forecaster fit, or models:/NAME@champion; or a table, without a fit.",
    ),
]
ModelTable = Annotated[
    str | None, typer.Argument(metavar="DATA", help="Table for the model. Default: there is no model.")
]
Preset = Annotated[
    str | None, typer.Option(help="Settings below those of --config: long, smoke or vanilla.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of settings.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as model.width=64; repeatable."),
]
Store = Annotated[
    str | None, typer.Option(help="MLflow store. Default: MLFLOW_TRACKING_URI, else your own.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite existing outputs.")]


Verb = Callable[..., dict[str, Any]]
"""Returns what it did: the keys of its document."""


def flags_of(
    function: Callable[..., Any], *without: str, table: Callable[..., Any] | None = None
) -> Callable[[Verb], Verb]:
    """Gives a verb a flag for each option of a function that the verb does not declare itself.

    Findings that are printed while it runs join what it returns, unless it returns its own.

    Args:
        function: of the Python interface.
        without: options that get no flag.
        table: the function for a table without a model, whose further options get flags too.
    """

    def decorate(verb: Verb) -> Verb:
        hints = get_type_hints(verb, include_extras=True)
        own = [
            part.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            for name, part in signature(verb).parameters.items()
            if part.kind is not Parameter.VAR_KEYWORD
        ]
        taken = {"quiet", "progress", *without, *(part.name for part in own)}
        every = options_of(table or function) | options_of(function)
        options = {name: one for name, one in every.items() if name not in taken}
        lists = {
            name: hint
            for name, (_, hint, option) in options.items()
            if _takes_several(hint) and not option.repeats
        }

        @wraps(verb)
        def run(**given: Any) -> dict[str, Any]:
            for name, hint in lists.items():
                if given[name] is not None:
                    parts = [part.strip() for part in given[name].split(",") if part.strip()]
                    given[name] = [*map(_number, parts)] if float in kinds_in(hint) else parts
            left_out = [name for name in data_options() if given.get(name) is None]
            context, found = copy_context(), dict[Finding, None]()
            # Files name the command that made them; they are the same with a document.
            words = [word for word in sys.argv[1:] if word != document.OPTION]
            context.run(shell_command.set, shlex.join(["forecaster", *words]))
            context.run(printed_findings.set, found)
            opened: list[Any] = []
            if "tracking" in given:
                from forecaster.runs.tracking import opened_runs

                context.run(opened_runs.set, opened)
            chosen = {name: value for name, value in given.items() if name not in left_out}
            answer = context.run(verb, **chosen)
            # Of a search, the runs of its trials and its fit come after its own.
            about = {"run": opened[0].about if opened else None} if "tracking" in given else {}
            return {"findings": [*found], **about, **answer}

        flags = [_flag(*option) for option in options.values()]
        run.__signature__ = Signature([*own, *flags])  # type: ignore[attr-defined]
        run.__annotations__ = {part.name: part.annotation for part in (*own, *flags)}
        return run

    return decorate


def _number(text: str) -> float | str:
    """Returns a number as written; text that is none is refused with its option."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def _takes_several(hint: Any) -> bool:
    return any(get_origin(kind) is Sequence for kind in kinds_in(hint))


def _flag(parameter: Parameter, hint: Any, option: Option) -> Parameter:
    """Returns an option of the Python interface as a parameter that typer understands."""
    name, kinds = parameter.name, [*kinds_in(hint)]
    more: dict[str, Any] = {"help": _phrase(option.help), "metavar": option.metavar}
    if parameter.default is Parameter.empty:
        argument = typer.Argument(**more | {"metavar": name.upper()})
        return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Annotated[str, argument])
    default = None if name in data_options() else parameter.default
    words = [f"--{name.replace('_', '-')}"]
    if option.repeats:
        several = Annotated[list[str] | None, typer.Option(*words, **more)]
        return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=several)
    choices = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
    # Text wherever that is one of the types: the others only Python can give.
    kind = next((kind for kind in (str, bool, int, float) if kind in kinds), str)
    if choices:
        kind = str
        more["metavar"] = option.metavar or "|".join(choices[0])
    elif _takes_several(hint):
        more["metavar"] = "A,B" if kind is str else "N,M"
        kind = str
    elif kind is bool and default:
        words = [f"{words[0]}/--no-{name}"]
    elif kind is int and option.least is not None:
        more["min"] = option.least
    elif Path in kinds and option.metavar is None:
        more["metavar"] = "PATH"
    return parameter.replace(
        kind=Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind | None if default is None else kind, typer.Option(*words, **more)],
    )


def _phrase(text: str) -> str:
    """Returns the first sentence of a description, and what leaving the option out means."""
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", text.replace("`", ""))
    absent = [other for other in others if other.startswith("None = ")]
    return " ".join([first, *absent[:1]]).replace("None = ", "Default: ")

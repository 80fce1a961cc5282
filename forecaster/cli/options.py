"""Flags of the verbs, taken from the Python interface: its names, defaults and docstrings."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from forecaster.api import data_options, descriptions
from forecaster.arguments import RETIRED
from forecaster.errors import ConfigError

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder written by forecaster fit, or models:/NAME@champion."),
]
Preset = Annotated[
    str | None, typer.Option(help="Settings below those of --config: best, long, smoke or vanilla.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of settings.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as model.width=64; repeatable."),
]
Store = Annotated[
    str | None, typer.Option(help="MLflow store. Default: MLFLOW_TRACKING_URI, else your own.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace outputs that are there.")]
_METAVARS = {
    "budget": "DURATION",
    "cutoff": "own|last|DATE",
    "shard": "K/N",
    "storage": "URL",
    "timeout": "DURATION",
    "until": "DATE",
}


def flags_of(
    function: Callable[..., Any], *without: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb a flag for each option of a function that the verb does not declare itself.

    Args:
        function: of the Python interface; its docstring is the help of the flags.
        without: options that get no flag.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(verb, include_extras=True)
        own = [
            part.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            for name, part in signature(verb).parameters.items()
            if part.kind is not Parameter.VAR_KEYWORD
        ]
        taken = {"self", "quiet", "progress", *without, *(part.name for part in own)}
        help_of, retired = descriptions(function), RETIRED.get(function.__name__, {})
        options = {
            name: part for name, part in signature(function).parameters.items() if name not in taken
        }
        lists = [name for name, part in options.items() if "Sequence" in part.annotation]

        @functools.wraps(verb)
        def run(**given: Any) -> None:
            for name in lists:
                if given[name] is not None:
                    given[name] = [part.strip() for part in given[name].split(",") if part.strip()]
            left_out = [name for name in data_options() if given.get(name) is None] + [*retired]
            verb(**{name: value for name, value in given.items() if name not in left_out})

        flags = [_flag(part, help_of[name]) for name, part in options.items()]
        flags += [_retired(name, instead) for name, instead in retired.items()]
        run.__signature__ = Signature([*own, *flags])  # type: ignore[attr-defined]
        run.__annotations__ = {part.name: part.annotation for part in (*own, *flags)}
        return run

    return decorate


def _flag(option: Parameter, text: str) -> Parameter:
    """Returns an option of the Python interface as a parameter that typer understands."""
    name, declared = option.name, option.annotation
    optional = option.default is not Parameter.empty
    default = None if optional and name in data_options() else option.default
    more: dict[str, Any] = {"help": _phrase(text), "metavar": _METAVARS.get(name)}
    kind: Any = str
    if not optional:
        more["metavar"] = name.upper()
        return option.replace(
            kind=Parameter.KEYWORD_ONLY, annotation=Annotated[kind, typer.Argument(**more)]
        )
    words = [f"--{name.replace('_', '-')}"]
    if declared.startswith("Literal"):
        more["metavar"] = "|".join(re.findall(r"""["'](.+?)["'][,\]]""", declared))
    elif "Sequence" in declared:
        more["metavar"] = "N,M" if "int" in declared else "A,B"
    elif declared.startswith("bool"):
        kind = bool
        words = [f"{words[0]}/--no-{name}"] if default else words
    elif declared.startswith("int"):
        kind = int
        if name not in data_options():  # the config checks these, and names the value
            more["min"] = 0 if name == "seed" else 1
    elif declared.startswith("float"):
        kind = float
    elif "Path" in declared and name not in _METAVARS:
        more["metavar"] = "PATH"
    if default is None:
        kind = kind | None
    return option.replace(
        kind=Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, typer.Option(*words, **more)],
    )


def _retired(name: str, instead: str) -> Parameter:
    """Returns a hidden option that says what is there instead."""

    def refuse(given: bool) -> None:
        if given:
            raise ConfigError(f"--{name} is retired: {instead}")

    # Eager: before what else is missing. A flag, so that it may have a value or none.
    option = typer.Option(f"--{name}", hidden=True, is_eager=True, callback=refuse)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])


def _phrase(text: str) -> str:
    """Returns the first sentence of a description, and what leaving the option out means."""
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", text.replace("`", ""))
    absent = [other for other in others if re.match(r"(None|Null) = ", other)]
    return re.sub(r"(None|Null) = ", "Default: ", " ".join([first, *absent[:1]]))

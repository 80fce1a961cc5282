"""`forecaster mcp`: verbs as tools of the Model Context Protocol, for programs with a language model.

A tool takes options of its verb, with their help, and answers with the verb's document.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from typing import Any, get_args, get_origin

from forecaster import __version__, cli
from forecaster.arguments import kinds_in
from forecaster.cli import document
from forecaster.errors import ConfigError

_READING = "horizon future known time series target"
TOOLS = {
    "check": _READING,
    "predict": f"{_READING} only cutoff levels sum by what_if fill_known out plot overwrite",
    "backtest": "horizon windows fit refit known time series target only levels tracking out report overwrite",
    "explain": f"{_READING} only channel cutoff out overwrite",
}
"""The options of each verb that its tool has."""
CLIENT = {"forecaster": {"command": "forecaster", "args": ["mcp"]}}
"""The entry of a client's configuration."""
_TABLE = "Table of times and numbers: path of a CSV, Parquet or Arrow file, folder, URL or glob."
_MODEL = "Folder written by forecaster fit, or models:/NAME@champion. Default: there is no model."
_ABOUT = (
    "Forecasts tables of time series, named by their paths. check shows what a table holds; predict without a "
    "model needs a horizon and no fit, and without out its rows are in the answer. Files that exist are kept "
    "unless overwrite is true. Messages name options as a shell does: what_if is --what-if."
)
_KINDS = {bool: "boolean", int: "integer", float: "number"}


def mcp() -> dict[str, Any]:
    """Serve check, predict, backtest and explain as tools to a client of the Model Context Protocol.

    The client starts it, and speaks over standard input and output; there is no network. With --json it prints the
    entry of the client's configuration instead.
    """
    try:
        import mcp_types  # noqa: F401  # of the first release that is served here
    except ImportError:
        raise ConfigError("forecaster mcp needs the package mcp: pip install 'mcp>=2'") from None
    if document.wanted():
        return {"mcpServers": CLIENT}
    asyncio.run(_serve())
    return {}


def tool(name: str) -> dict[str, Any]:
    """Returns name, description and JSON schema of a tool."""
    verb, options = _verb(name), _options(name)
    properties = {"table": {"type": "string", "description": _TABLE}}
    if "model" in signature(verb).parameters:
        properties["model"] = {"type": "string", "description": _MODEL}
    properties |= {key: _schema(option) for key, option in options.items()}
    required = [key for key, option in options.items() if option.default is Parameter.empty]
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["table", *required],
        "additionalProperties": False,
    }
    about = "\n\n".join(cleandoc(verb.__doc__).split("\n\n")[:2])
    return {"name": name, "description": about, "input_schema": schema}


def call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the verb of a tool as if it was typed, and returns its document."""
    try:
        sys.argv[1:] = _words(name, arguments)
        found = document.answered(cli.app)
    except Exception as error:
        found = document.failed(error)
    return document.plain(found)


def _words(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Returns the words of a command; none of them can be taken for an option."""
    if name not in TOOLS:
        raise ConfigError(f"tool {name}: expected one of {', '.join(TOOLS)}")
    options = _options(name)
    words, tables = [name], [str(arguments[key]) for key in ("model", "table") if arguments.get(key)]
    for key, value in arguments.items():
        if key in ("model", "table") or value is None:
            continue
        if key not in options:
            raise ConfigError(f"{name} {key}: expected one of {', '.join(options)}")
        flag = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is False:
            words += [f"--no-{flag[2:]}"] * bool(options[key].default)
        elif isinstance(value, list) and _is_list(options[key]):
            words += [f"{flag}={one}" for one in value]
        else:
            words.append(f"{flag}={','.join(map(str, value)) if isinstance(value, list) else value}")
    return [*words, "--", *tables]


def _verb(name: str) -> Any:
    return getattr(import_module(f"forecaster.cli.{name}"), name)


def _options(name: str) -> dict[str, Parameter]:
    """Returns the options of a tool by name, as typer reads them."""
    every = signature(_verb(name)).parameters
    return {key: every[key] for key in TOOLS[name].split()}


def _is_list(option: Parameter) -> bool:
    return any(get_origin(kind) is list for kind in kinds_in(option.annotation))


def _schema(option: Parameter) -> dict[str, Any]:
    """Returns type and description of an option."""
    kinds, about = [*kinds_in(option.annotation)], get_args(option.annotation)[-1]
    one = {"type": next((_KINDS[kind] for kind in kinds if kind in _KINDS), "string")}
    whole = {"type": "array", "items": one} if _is_list(option) else one
    values = f" ({about.metavar})" if about.metavar else ""
    return {**whole, "description": f"{about.help}{values}"}


async def _serve() -> None:
    """Answers a client until it closes standard input; one call at a time."""
    import mcp_types as types
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    turn = asyncio.Lock()

    async def listed(context: Any, request: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(**tool(name)) for name in TOOLS])

    async def called(context: Any, request: Any) -> Any:
        async with turn:
            found = await asyncio.to_thread(call, request.name, request.arguments or {})
        content = types.TextContent(type="text", text=document.text(found).decode())
        fault = "error" in found
        return types.CallToolResult(content=[content], structured_content=found, is_error=fault)

    server = Server(
        "forecaster",
        version=__version__,
        instructions=_ABOUT,
        on_list_tools=listed,
        on_call_tool=called,
    )
    # Standard output of the verbs goes to standard error meanwhile.
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())

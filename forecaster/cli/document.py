"""The document of a verb: what it did, or its fault, as one JSON object.

    verb · version · exit_code · keys of the verb · findings              what it did
    verb · version · exit_code · error: code, message, fix · findings     its fault

A verb returns a mapping of its own keys, which may hold paths, dates, frames and arrays.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from forecaster import __version__
from forecaster.errors import (
    ArtifactError,
    ConfigError,
    DataError,
    FitError,
    ForecasterError,
    OutputError,
    first_line,
)

OPTION = "--json"
CODES: dict[type[Exception], str] = {
    DataError: "data",
    ConfigError: "config",
    ArtifactError: "artifact",
    FitError: "fit",
    OutputError: "output",
    MemoryError: "memory",
    OSError: "system",
}
"""The code of an error by its class; further ones are usage and bug."""
_IMPERATIVES = (
    "add|ask|bring|choose|compare|convert|copy|correct|did you mean|discard|drop|fill|fit|"
    "forecaster(?= fit)|free|give|install|keep|leave|lower|make|move|name|open|pass|pip(?=[^)]*$)|"
    "rename|replace|rerun|save|see|serve|shorten|start|take|upgrade|use|wait|write"
)
_FIX = re.compile(rf"(?:; |: )((?:{_IMPERATIVES})\b(?:(?!; ).)*)$")


def wanted() -> bool:
    """Returns whether the command asks for a document."""
    return OPTION in sys.argv[1:] and "--help" not in sys.argv[1:]


def answered(app: Any) -> dict[str, Any]:
    """Runs the verb of a command, and returns its document."""
    answer = app(standalone_mode=False)
    return _document(answer if isinstance(answer, dict) else {"exit_code": answer or 0})


def failed(error: Exception) -> dict[str, Any]:
    """Returns the document of a verb that raised an error."""
    fault = fault_of(error)
    findings = getattr(error, "findings", ())
    return _document(
        {"exit_code": 1 if fault["code"] == "bug" else 2, "error": fault, "findings": findings}
    )


def fault_of(error: Exception) -> dict[str, str | None]:
    """Returns code, message and fix of an error; the fix, where one is known, is also in the message.

    It is the advice of the findings; else the last part of the message, if that begins with what to do.
    """
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "bug")
    message, fix = str(error), None
    formatted = getattr(error, "format_message", None)
    if isinstance(error, ForecasterError):
        message = error.in_shell or message
    elif isinstance(error, MemoryError):
        message = f"out of memory: {message or 'free some, or give less data at a time'}"
    elif isinstance(error, OSError):  # one that no verb foresaw: a full pipe, a folder that vanished
        parts = (error.filename, error.strerror or error)
        message = ": ".join(str(part) for part in parts if part)
    elif formatted is not None:  # usage errors of typer, whichever release: they format themselves
        code, message = "usage", formatted()
        context = getattr(error, "ctx", None)
        fix = f"{context.command_path if context else 'forecaster'} --help lists what there is"
    else:
        message = f"{type(error).__name__}: {first_line(error)}"
    found = getattr(error, "findings", ())
    advice = "; ".join(
        dict.fromkeys(one.advice for one in found if one.severity == "error" and one.advice)
    )
    if code != "bug" and fix is None:
        fix = advice or _what_to_do(message)
    return {"code": code, "message": message, "fix": fix}


def text(document: Mapping[str, Any]) -> bytes:
    """Returns a document as JSON in UTF-8; numbers that are not finite are null, dates are ISO 8601."""
    # Names of files that are no UTF-8 become escapes of JSON.
    return json.dumps(plain(document), ensure_ascii=False, indent=1).encode(errors="backslashreplace")


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document of mappings, lists, text, numbers and None alone."""
    from pydantic_core import to_jsonable_python

    found: dict[str, Any] = to_jsonable_python(document, inf_nan_mode="null", fallback=_unfold)
    return found


def _document(answer: Mapping[str, Any]) -> dict[str, Any]:
    common = {"verb": _verb(), "version": __version__, "exit_code": 0}
    own = {name: value for name, value in answer.items() if name != "findings"}
    return {**common, **own, "findings": [*answer.get("findings", ())]}


def _verb() -> str | None:
    return next((word for word in sys.argv[1:2] if not word.startswith("-")), None)


def _what_to_do(message: str) -> str | None:
    found = _FIX.search(message)
    return found and found[1]


def _unfold(value: Any) -> Any:
    """Returns a frame as a list of rows, an array or a number of numpy as Python's."""
    return value.to_dicts() if hasattr(value, "to_dicts") else value.tolist()

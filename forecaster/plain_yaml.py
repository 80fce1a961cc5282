"""Settings from a YAML file or a flag: plain names and values, whoever wrote them.

What comes in: text. What goes out: mappings, lists, numbers and words, or a `ConfigError` of one line.
Promised: no tag makes an object; a small text cannot become something large, because anchors and
aliases are refused, and what is no text of a file's size is not read; a name that is given twice is
said, not silently the last.
"""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

import yaml

from forecaster.errors import ConfigError

_MOST_BYTES = 1 << 20


def read_yaml(path: str | Path, what: str = "config") -> dict[str, Any]:
    """Returns the settings of a YAML file, none where it is empty.

    Args:
        path: of the file.
        what: the file is called in messages.

    Raises:
        ConfigError: it cannot be read, is not plain YAML, or holds something else than settings.
    """
    name = f"{what} {path}"
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise ConfigError(
            f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{name}: expected settings, found a file of more than 1 MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 (byte {error.start})") from error
    found = parse_yaml(text, name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: expected settings by name, found {type(found).__name__}")
    return found


def parse_yaml(text: str, source: str) -> Any:
    """Returns what a text says.

    Args:
        text: YAML.
        source: where it is from, for messages.

    Raises:
        ConfigError: it is not YAML, or not plain.
    """
    try:
        return yaml.load(text, Loader=_Plain)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        raise ConfigError(f"{source}: not YAML ({reason[:300]})") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: not plain YAML: nested too deep") from error
    except ValueError as error:  # a date such as 2024-13-45, a number of 5,000 digits
        raise ConfigError(f"{source}: not YAML ({reprlib.repr(str(error))})") from error


class _Plain(yaml.SafeLoader):
    """The safe loader without aliases, which let a few lines stand for millions."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Returns the next node, unless it stands for another."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "anchors and aliases are not taken: write the setting out", mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping whose names are all different."""
        names = [key.value for key, _ in node.value]
        for number, name in enumerate(names):
            if isinstance(name, str) and name in names[:number]:
                mark = node.value[number][0].start_mark
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{name[:100]}' is given twice", mark
                )
        return super().construct_mapping(node, deep)

"""JSON with one thing in it replaced: every place, and what an enemy or an accident would put there."""

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

Path = tuple[str | int, ...]

DEEP: Any = []
for _ in range(50):
    DEEP = [DEEP]

WRONG: list[Any] = [
    *(None, True, -1, 0, 1, 1.5, 10**9, 10**12, 2**63, 10**30, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "7",
        "../../etc/passwd",
        "/etc/passwd",
        "a\0b",
        "two\nlines",
        "é🎈",
        "a" * 10_000,
        "\ud800",
    ),
    *([], {}, [None], [[]], {"": {}}, DEEP, [0] * 1000, [10**9] * 5, ["sales", "sales"]),
]
"""What takes a place in turn."""
GONE = object()
"""The place itself is taken away."""


def places(content: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the path of every value, of containers too."""
    if path:
        yield path
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from places(value, (*path, key))


def wounded(content: Any, path: Path, value: Any) -> Any:
    """Returns a copy with another value at a path."""
    result = copy.deepcopy(content)
    below = result
    for key in path[:-1]:
        below = below[key]
    if value is GONE:
        del below[path[-1]]
    else:
        below[path[-1]] = value
    return result


def fuzz(
    folder: FilePath, names: Iterable[str], tried: Callable[[], bool], seed: int, count: int
) -> None:
    """Tries a folder with some of all wounds of its JSON files; both answers must be common."""
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    wounds = [
        (name, path, value)
        for name, text in texts.items()
        for path in places(json.loads(text))
        for value in [*WRONG, GONE]
    ]
    answers = []
    for name, path, value in random.Random(seed).sample(wounds, count):
        (folder / name).write_text(json.dumps(wounded(json.loads(texts[name]), path, value)))
        try:
            answers.append(tried())
        except BaseException as fault:
            fault.add_note(f"{name}: {'.'.join(map(str, path))} = {str(value)[:80]!r}")
            raise
        (folder / name).write_text(texts[name], encoding="utf-8")
    # Or the wounds test nothing.
    assert 0.05 * count < sum(answers) < 0.95 * count

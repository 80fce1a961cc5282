"""Why a delimited file cannot be read: which row, which byte, how many fields.

What comes in are the bytes of a file that a fast reader refused or that may have short rows; what goes
out is one clear `DataError`. Rows are counted by quotes, delimiters and line ends alone, vectorised,
so that a fault in row five million is found in about the time of a read.
"""

from __future__ import annotations

import codecs
import mmap
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.findings import fault
from forecaster.panel.reading.dialect import Dialect

_BLOCK = 1 << 20


def field_counts(
    content: Path | bytes, separator: str, eol: str = "\n", end: int | None = None
) -> tuple[NDArray[np.int64], bool]:
    """Returns the number of fields of every line, the header among them, and whether quotes are closed.

    Delimiters and line ends between quotes are text. A blank line has 0 fields. Bytes from `end` on
    are not looked at.
    """
    counts, lengths = [], []
    inside, pending, length, last = False, 0, 0, 0
    for block in _blocks(content, end):
        quotes = block == ord('"')
        ends, separators = block == ord(eol), block == ord(separator)
        if inside or quotes.any():
            within = np.logical_xor.accumulate(quotes) ^ inside
            inside = bool(within[-1])
            ends &= ~within
            separators &= ~within
        at, marks = np.flatnonzero(ends), np.flatnonzero(separators)
        if len(at):
            before = np.searchsorted(marks, at)
            counts.append(np.diff(before, prepend=-pending))
            sizes = np.diff(at, prepend=-1 - length) - 1
            # A carriage return is part of the line end, not of the line.
            returned = np.where(at > 0, block[at - 1], last) == ord("\r")
            lengths.append(sizes - (returned & (sizes > 0)) if eol == "\n" else sizes)
            pending, length = len(marks) - int(before[-1]), len(block) - 1 - int(at[-1])
        else:
            pending, length = pending + len(marks), length + len(block)
        last = int(block[-1])
    if length:
        counts.append(np.array([pending]))
        lengths.append(np.array([length]))
    if not counts:
        return np.zeros(0, np.int64), not inside
    sizes = np.concatenate(lengths)
    return np.where(sizes > 0, np.concatenate(counts) + 1, 0), not inside


def refuse_uneven(
    content: Path | bytes, name: str, dialect: Dialect, *, short_too: bool = True
) -> None:
    """Does nothing where every row has the header's number of fields; blank lines aside.

    Args:
        content: file or bytes.
        name: for the message.
        dialect: delimiter, line end, and lines before the header.
        short_too: whether rows with fewer fields are a fault.

    Raises:
        DataError: naming the first such row, or the row where a quote opens and never closes.
    """
    if short_too and _is_even(content, dialect):
        return
    counts, closed = field_counts(content, dialect.separator, dialect.eol)
    counts = counts[dialect.skipped :]
    counts = counts[np.argmax(counts > 0) :] if len(counts) else counts
    if not closed:
        raise fault(
            "quotes",
            f"{name}: a quote sign opens in row {len(counts) - 1} or before and is never closed",
            'close it, or write a quote sign within text twice, as ""',
        )
    width = counts[0] if len(counts) else 0
    odd = (counts > width) | (short_too & (counts < width) & (counts > 0))
    if odd.any():
        row = int(np.argmax(odd))
        raise fault(
            "fields",
            f"{name}: expected {width} fields as in the header, found {counts[row]} in row {row} "
            f"({int(odd.sum())} such rows)",
            "mend the row, put quotes around text that holds the delimiter, or say --delimiter",
            where=f"row {row}",
            count=int(odd.sum()),
        )


def _is_even(content: Path | bytes, dialect: Dialect) -> bool:
    """Whether counting alone shows as many delimiters as the header's for every line: no quotes, say.

    Called after a reader that takes no row longer than the header, so that a short one would show.
    """
    if dialect.skipped:
        return False
    separators = lines = last = 0
    for block in _blocks(content):
        if (block == ord('"')).any():
            return False
        separators += int(np.count_nonzero(block == ord(dialect.separator)))
        lines += int(np.count_nonzero(block == ord(dialect.eol)))
        last = int(block[-1])
    lines += last != ord(dialect.eol)
    return separators == lines * (len(dialect.header) - 1)


def refuse_encoding(content: Path | bytes, name: str, separator: str) -> None:
    """Does nothing where the bytes are UTF-8.

    Raises:
        DataError: naming the first byte that is not, its row, and the command that converts the file.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    for block in _blocks(content):
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(block.tobytes())
        except UnicodeDecodeError as error:
            at, byte = done - held + error.start, error.object[error.start]
            _refuse_byte(content, name, separator, at, byte)
        done += len(block)


def _refuse_byte(content: Path | bytes, name: str, separator: str, at: int, byte: int) -> NoReturn:
    row = len(field_counts(content, separator, end=at + 1)[0]) - 1
    # Windows writes letters where Latin-1 has control signs.
    page = "cp1252" if 0x80 <= byte < 0xA0 else "latin1"
    where = f"row {row}" if row else "the header"
    raise fault(
        "encoding",
        f"{name}: expected UTF-8, found the byte 0x{byte:02x} in {where} (byte {at} of the file)",
        f"save it as UTF-8, as with iconv -f {page} -t utf8 {name} > new.csv",
        where=where,
    )


def _blocks(content: Path | bytes, end: int | None = None) -> list[NDArray[np.uint8]]:
    data: bytes | mmap.mmap = b""
    if isinstance(content, bytes):
        data = content
    elif content.stat().st_size:
        with content.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = np.frombuffer(data, np.uint8)[:end]
    return [whole[start : start + _BLOCK] for start in range(0, len(whole), _BLOCK)]

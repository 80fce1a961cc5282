"""Encodings of delimited text: what is not UTF-8 becomes UTF-8, a block at a time.

UTF-16 is recognised by its first bytes. All other text that is no UTF-8 is taken for Windows-1252, which has
the letters of Latin-1 and more, and leaves five bytes without a meaning.
"""

from __future__ import annotations

import codecs
import io
import re

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.findings import Finding, fault

WINDOWS = "Windows-1252"
_BLOCK = 1 << 20
UTF16 = re.compile(
    rb"(?P<UTF_16>\xff\xfe|\xfe\xff)|(?P<UTF_16LE>[^\0]\0[^\0]\0)|(?P<UTF_16BE>\0[^\0]\0[^\0])"
)
"""The first bytes of each form of UTF-16: its mark, or the zeros beside two letters."""
_CELL = re.compile(rb'(?<![^,;|\t"\r\n])[^,;|\t"\r\n]*[\x80-\xff][^,;|\t"\r\n]*')
"""A cell with a letter beyond ASCII; it begins after a delimiter, so that no byte is looked at twice."""


def as_utf8(data: NDArray[np.uint8], encoding: str, name: str) -> bytes:
    """Returns the bytes of a text in UTF-8.

    Raises:
        DataError: a byte has no meaning in the encoding; names its line.
    """
    decoder, utf8 = codecs.getincrementaldecoder(encoding)(), io.BytesIO()
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK].tobytes()
        try:
            text = decoder.decode(block, start + _BLOCK >= len(data))
        except UnicodeDecodeError as error:
            before = utf8.getvalue() + error.object[: error.start]
            where, byte = f"line {before.count(10) + 1}", error.object[error.start]
            text = f"{name}: expected {encoding}, found the byte 0x{byte:02x} in {where}"
            advice = "name its encoding, as --encoding cp850, or save it as UTF-8"
            raise fault("encoding", text, advice, where=where) from error
        utf8.write(text.encode())
    return utf8.getvalue()


def encoding_note(utf8: bytes, encoding: str) -> Finding:
    """Returns the note that a text was read in an encoding, with its first cell that shows it."""
    where, letter = "", re.search(rb"[\x80-\xff]", utf8)
    # Two searches: cells of the lines before take twenty times as long.
    if letter and (cell := _CELL.search(utf8, utf8.rfind(b"\n", 0, letter.start()) + 1)):
        where = f"'{cell[0].decode().strip()[:80]}' in line {utf8.count(10, 0, cell.start()) + 1}"
    advice = "pass --encoding, as cp850, where that is wrong"
    return Finding(
        "note", "encoding", f"read as {encoding.replace('_', '-')}, not UTF-8", advice, where=where
    )

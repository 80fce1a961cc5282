"""Drawings for a page: what comes in are numbers, what goes out is SVG text.

Colours are the page's own variables (--ink, --blue, --orange), so a drawing is read on dark and light
pages alike: a heat map is one colour, the larger the number the less transparent.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

_BLUE, _ORANGE = (47, 128, 208), (214, 110, 40)
_PIXELS = 256  # to a side of a heat map at most: more are not seen
HATCH = (
    '<svg width="0" height="0"><defs><pattern id="masked" width="5" height="5" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line x1="0" y1="0" x2="0" y2="5" stroke="var(--ink)" stroke-opacity=".45"/></pattern></defs>'
    "</svg>"
)
"""The pattern "url(#masked)", once per page."""
MARKS = {
    "circle": "M-3.2,0a3.2,3.2 0 1,0 6.4,0a3.2,3.2 0 1,0 -6.4,0",
    "square": "M-2.9,-2.9h5.8v5.8h-5.8z",
    "triangle": "M0,-3.8L3.7,2.8H-3.7z",
    "diamond": "M0,-4.2L4,0L0,4.2L-4,0z",
    "cross": "M-3.6,-2.2L-2.2,-3.6L0,-1.4L2.2,-3.6L3.6,-2.2L1.4,0L3.6,2.2L2.2,3.6L0,1.4L-2.2,3.6"
    "L-3.6,2.2L-1.4,0z",
    "drop": "M0,3.8L3.7,-2.8H-3.7z",
}
"""Outlines of marks by name, around 0."""


def svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """Returns a drawing that scales down with the page; `label` is read out in its place."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "tick") -> str:
    """Returns words; anchor is start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    """Returns a filled box that says `title` when pointed at."""
    said = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" '
        f'fill="{fill}">{said}</rect>'
    )


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    """Returns a thin line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="rule"/>'


def line(
    x: NDArray[np.floating], y: NDArray[np.floating], color: str, width: float = 1.5, dash: str = ""
) -> str:
    """Returns a line through points, with gaps where y is NaN; `dash` as SVG's stroke-dasharray."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    real = np.isfinite(y)
    runs = np.split(np.arange(len(y)), np.flatnonzero(np.diff(real)) + 1)
    drawn = [
        "M" + "L".join(f"{x[i]:.1f},{y[i]:.1f}" for i in run)
        for run in runs
        if len(run) and real[run[0]]
    ]
    return (
        f'<path d="{"".join(drawn)}" fill="none" stroke="{color}" stroke-width="{width}" '
        f'stroke-linejoin="round" stroke-linecap="round"{dashed}/>'
    )


def mark(x: float, y: float, shape: str, color: str, title: str = "") -> str:
    """Returns a small mark that says `title` when pointed at.

    Args:
        x, y: its middle.
        shape: one of `MARKS`.
        color: of its inside.
        title: may be empty.
    """
    said = f"<title>{escape(title)}</title>" if title else ""
    path = f'<path transform="translate({x:.1f} {y:.1f})" d="{MARKS[shape]}"'
    return (
        f'{path} fill="{color}" stroke="{color}">{said}</path>' if said else f'{path} fill="{color}"/>'
    )


def band(
    x: NDArray[np.floating], low: NDArray[np.floating], high: NDArray[np.floating], opacity: float
) -> str:
    """Returns the area between two lines."""
    around = zip(np.append(x, x[::-1]), np.append(low, high[::-1]), strict=True)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in around)
    return f'<polygon points="{points}" fill="var(--blue)" fill-opacity="{opacity}"/>'


def heat(weights: NDArray[np.floating], box: tuple[float, float, float, float]) -> str:
    """Returns a heat map: blue from 0 to the largest, orange below 0.

    Args:
        weights: [row, column]; more than 256 to a side are averaged.
        box: x, y, width, height.
    """
    few = pooled(pooled(np.asarray(weights, np.float64), 0), 1)
    share = few / max(float(np.abs(few).max(initial=0.0)), 1e-12)
    pixels = np.empty((*few.shape, 4), np.uint8)
    pixels[..., :3] = np.where(share[..., None] < 0, _ORANGE, _BLUE)
    pixels[..., 3] = np.round(255 * np.abs(share))
    x, y, width, height = box
    data = base64.b64encode(_png(pixels)).decode("ascii")
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{data}"/>'
    )


def pooled(values: NDArray[np.float64], axis: int, most: int = _PIXELS) -> NDArray[np.float64]:
    """Returns means of equal runs along an axis, at most `most`; the last run may be shorter."""
    size = -(-values.shape[axis] // most)
    starts = np.arange(0, values.shape[axis], size)
    counts = np.diff(np.append(starts, values.shape[axis]))
    sums = np.add.reduceat(values, starts, axis=axis)
    means: NDArray[np.float64] = sums / np.expand_dims(counts, 1 - axis)
    return means


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Returns round numbers between two others, about `count` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(float(m * power) for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [float(n * step) for n in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def spread(count: int, most: int) -> Sequence[int]:
    """Returns at most `most` evenly spread numbers of 0 … count − 1, the ends among them."""
    return sorted({round(float(n)) for n in np.linspace(0, count - 1, min(count, most))})


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """An image [row, column, RGBA] as a PNG file (ISO/IEC 15948)."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    height, width = pixels.shape[:2]
    # Each row opens with its filter: 0, none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )

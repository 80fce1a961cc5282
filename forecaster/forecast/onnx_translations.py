"""Translations into ONNX of operations that torch translates only after it has decomposed them.

Arguments are those of the operation in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnx.numpy_helper import from_array
from onnxscript import opset18 as op


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Returns the translation of each operation."""
    aten = torch.ops.aten
    return {
        aten.__and__.Tensor: _and,
        aten.__or__.Tensor: _or,
        aten.detach_.default: _detach,
        aten.nan_to_num.default: _nan_to_num,
        aten.nanmean.default: _nanmean,
        aten.numpy_T.default: _transpose,
        aten.rsub.Scalar: _rsub,
        aten.square.default: _square,
        aten.sym_numel.default: _sym_numel,
        aten.to.dtype: _to,
        aten.to.dtype_layout: _to,
    }


def _and(one: Any, other: Any) -> Any:
    return op.And(one, other)


def _or(one: Any, other: Any) -> Any:
    return op.Or(one, other)


def _detach(values: Any) -> Any:
    return op.Identity(values)


def _nan_to_num(values: Any, nan: float = 0.0, posinf: None = None, neginf: None = None) -> Any:
    limits = np.finfo(values.dtype.numpy())
    number = op.Where(op.IsNaN(values), _constant(nan or 0.0, values), values)
    return op.Clip(number, _constant(limits.min, values), _constant(limits.max, values))


def _nanmean(values: Any, dim: Sequence[int], keepdim: bool = False, dtype: None = None) -> Any:
    axes: Any = op.Constant(value_ints=list(dim))
    real = op.Not(op.IsNaN(values))
    numbers = op.Where(real, values, _constant(0.0, values))
    total = op.ReduceSum(numbers, axes, keepdims=int(keepdim))
    count = op.ReduceSum(op.CastLike(real, values), axes, keepdims=int(keepdim))
    return op.Div(total, count)


def _transpose(matrix: Any) -> Any:
    return op.Transpose(matrix)


def _rsub(values: Any, other: float, alpha: int = 1) -> Any:
    return op.Sub(_constant(other, values), values)


def _square(values: Any) -> Any:
    return op.Mul(values, values)


def _sym_numel(values: Any) -> Any:
    return op.Size(values)


def _to(values: Any, dtype: int, *others: Any, **other: Any) -> Any:
    return op.Cast(values, to=dtype)


def _constant(number: float, values: Any) -> Any:
    """A number of the type of some values."""
    return op.Constant(value=from_array(np.asarray(number, values.dtype.numpy())))

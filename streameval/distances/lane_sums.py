"""Sums over two rows in 32 lanes, held in registers: LLVM vectors, called as numba compiles.

Element d goes to lane ``d % 32``; each lane is summed in ascending d; the lanes are summed in
halves. Written as a loop over an array of lanes, the same sum goes through memory once for every
32 elements, and takes two to three times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 32

_intrinsic: Any = intrinsic
_get_or_insert: Any = cgutils.get_or_insert_function
_alloca: Any = cgutils.alloca_once_value
_I64 = ir.IntType(64)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Return the address of a row."""
    parts = context.make_array(kind)(context, builder, array)
    stride = builder.extract_value(parts.strides, 0)
    element = parts.data.type
    start = builder.bitcast(parts.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [builder.mul(row, stride)]), element)


def _load(builder: Any, row: Any, start: Any, mask: Any) -> Any:
    """Return 32 elements from one on, as doubles; zeros where the mask is unset."""
    element = ir.FloatType() if row.type.pointee == ir.FloatType() else ir.DoubleType()
    size = 4 if element == ir.FloatType() else 8
    kind = ir.VectorType(element, LANES)
    address = builder.bitcast(builder.gep(row, [start]), kind.as_pointer())
    if mask is None:
        values = builder.load(address, align=size)
    else:
        name = f"llvm.masked.load.v{LANES}f{8 * size}.p0"
        arguments = [address.type, ir.IntType(32), mask.type, kind]
        function = _get_or_insert(builder.module, ir.FunctionType(kind, arguments), name)
        zeros = ir.Constant(kind, [0.0] * LANES)
        values = builder.call(function, [address, ir.IntType(32)(size), mask, zeros])
    return values if size == 8 else builder.fpext(values, _DOUBLES)


def _halved(builder: Any, values: Any) -> Any:
    """Return the sum of all lanes: lane i and lane i + 16, then + 8, 4, 2, 1."""
    half = LANES // 2
    index = ir.IntType(32)
    while half:
        sides = []
        for start in (0, half):
            which = [index(lane) for lane in range(start, start + half)]
            mask = ir.Constant(ir.VectorType(index, half), which)
            sides.append(builder.shuffle_vector(values, values, mask))
        values = builder.fadd(*sides)
        half //= 2
    return builder.extract_element(values, index(0))


def _product(builder: Any, a: Any, b: Any) -> Any:
    return builder.fmul(a, b)


def _squared_difference(builder: Any, a: Any, b: Any) -> Any:
    difference = builder.fsub(a, b)
    return builder.fmul(difference, difference)


def _absolute_difference(builder: Any, a: Any, b: Any) -> Any:
    kind = ir.FunctionType(_DOUBLES, [_DOUBLES])
    function = _get_or_insert(builder.module, kind, f"llvm.fabs.v{LANES}f64")
    return builder.call(function, [builder.fsub(a, b)])


def _sum(term: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an intrinsic that sums a term over the elements of rows a[i] and b[k]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = _row(context, builder, signature.args[0], args[0], args[1])
        other = _row(context, builder, signature.args[2], args[2], args[3])
        shape = context.make_array(signature.args[0])(context, builder, args[0]).shape
        width = builder.extract_value(shape, 1)
        whole = builder.and_(width, _I64(-LANES))
        total = _alloca(builder, ir.Constant(_DOUBLES, [0.0] * LANES))

        def add(start: Any, mask: Any) -> None:
            a, b = (_load(builder, row, start, mask) for row in (one, other))
            builder.store(builder.fadd(builder.load(total), term(builder, a, b)), total)

        with cgutils.for_range(builder, builder.udiv(whole, _I64(LANES))) as loop:
            add(builder.mul(loop.index, _I64(LANES)), None)
        with builder.if_then(builder.icmp_unsigned("<", whole, width)):
            lanes = ir.VectorType(_I64, LANES)
            rest = builder.insert_element(ir.Constant(lanes, None), width, ir.IntType(32)(0))
            first = builder.insert_element(ir.Constant(lanes, None), whole, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            rest, first = (builder.shuffle_vector(x, x, zeros) for x in (rest, first))
            element = builder.add(first, ir.Constant(lanes, list(range(LANES))))
            add(whole, builder.icmp_unsigned("<", element, rest))
        return _halved(builder, builder.load(total))

    @_intrinsic
    def lane_sum(typing_context, a, i, b, k):  # type: ignore[no-untyped-def]
        for rows in (a, b):
            if not isinstance(rows, types.Array) or rows.ndim != 2 or rows.layout != "C":
                raise TypingError(f"rows are {rows}; a matrix in C order is needed")
            if rows.dtype not in (types.float32, types.float64):
                raise TypingError(f"rows are of {rows.dtype}; float32 or float64 is needed")
        return types.float64(a, types.intp, b, types.intp), generate

    return lane_sum


inner_product = _sum(_product)
squared_difference = _sum(_squared_difference)
absolute_difference = _sum(_absolute_difference)

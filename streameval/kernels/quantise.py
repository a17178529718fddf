"""Values to cells of a grid, 32 at a time: LLVM vectors, called as numba compiles.

Written as a loop, LLVM makes vectors of half the width of it, and takes twice the time.

What counting relies on: this is monotone in floating point too (subtract, multiply, clamp and
truncate each are), and an edge's band is quantised by the same operations (`grids.cell_of`). A
value in a cell before the band's first cell is therefore below the band, one after the last cell
above it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from streameval.kernels.grids import ABOVE, LAST

BLOCK = 32

_intrinsic: Any = intrinsic
_get_or_insert: Any = cgutils.get_or_insert_function
_alloca: Any = cgutils.alloca_once_value
_tuple: Any = types.Tuple
_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))


def _vector(element: Any, value: float | None = None) -> Any:
    kind = ir.VectorType(element, BLOCK)
    return kind if value is None else ir.Constant(kind, [value] * BLOCK)


def _call(builder: Any, name: str, *args: Any, returns: Any = None) -> Any:
    """Call an LLVM intrinsic; it returns what its last argument is, if nothing else is said."""
    kind = ir.FunctionType(returns or args[-1].type, [arg.type for arg in args])
    return builder.call(_get_or_insert(builder.module, kind, name), args)


def _spread(builder: Any, value: Any) -> Any:
    """Return a vector of copies of a value."""
    nothing = ir.Constant(_vector(value.type), ir.Undefined)
    one = builder.insert_element(nothing, value, _I32(0))
    return builder.shuffle_vector(one, nothing, _vector(_I32, 0))


def _load(builder: Any, kind: Any, start: Any, place: Any, mask: Any) -> Any:
    """Return a block of a row; zeros where the mask is unset."""
    size = 4 if kind == ir.FloatType() else 8
    address = builder.bitcast(builder.gep(start, [place]), _vector(kind).as_pointer())
    if mask is None:
        return builder.load(address, align=size)
    name = f"llvm.masked.load.v{BLOCK}f{8 * size}.p0"
    return _call(builder, name, address, _I32(size), mask, _vector(kind, 0))


def _store(builder: Any, what: Any, start: Any, place: Any, mask: Any) -> None:
    """Write a block of a row where the mask is set."""
    address = builder.bitcast(builder.gep(start, [place]), what.type.as_pointer())
    sizes = {ir.FloatType(): ("f32", 4), ir.DoubleType(): ("f64", 8), _I16: ("i16", 2)}
    name, align = sizes[what.type.element]
    if mask is None:
        builder.store(what, address, align=align)
    else:
        name = f"llvm.masked.store.v{BLOCK}{name}.p0"
        _call(builder, name, what, address, _I32(align), mask, returns=ir.VoidType())


@_intrinsic
def quantise(typing_context, values, weight, offset, origin, scale, far, row, cells):  # type: ignore[no-untyped-def]
    """Write ``values * weight + offset``, and the cell of each.

    Parameters
    ----------
    values, weight, offset : [n] float32 or float64, contiguous
        Without `weight`, None, values may be anything, and it is ``values + offset``.
    origin, scale, far
        Of the grid, of the same dtype.
    row : [>= n] of the same dtype, written
    cells : [>= n] uint16, written

    Returns
    -------
    the first cell with any value; and how many values are NaN or ±inf before the offset is added,
    which is looked at without `weight` only
    """
    number, weighted = values.dtype, not isinstance(weight, types.NoneType)
    for row in (values, offset, weight) if weighted else (values, offset):
        if row.ndim != 1 or row.layout != "C" or row.dtype != number:
            raise TypingError(f"a row is {row}; all must be contiguous, of {number}")
    kind = ir.FloatType() if number == types.float32 else ir.DoubleType()

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def array(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, args[which])

        given, added = array(0), array(2).data
        factor = array(1).data if weighted else None
        start, steps, reach = (_spread(builder, args[which]) for which in (3, 4, 5))
        zero, above, last = (_vector(kind, cell) for cell in (0, ABOVE, LAST))
        lowest = _alloca(builder, _vector(_I32, LAST))
        odd = _alloca(builder, _vector(_I32, 0))

        def block(place: Any, mask: Any) -> None:
            value = _load(builder, kind, given.data, place, mask)
            if factor is None:
                finite = builder.fcmp_ordered("==", builder.fsub(value, value), zero)
                seen = builder.zext(builder.not_(finite), _vector(_I32))
                builder.store(builder.add(builder.load(odd), seen), odd)
            else:
                value = builder.fmul(value, _load(builder, kind, factor, place, mask))
            value = builder.fadd(value, _load(builder, kind, added, place, mask))
            _store(builder, value, array(6).data, place, mask)
            value = builder.fmul(builder.fsub(value, start), steps)
            value = builder.select(builder.fcmp_ordered(">", value, zero), value, zero)  # NaN too
            below = builder.select(builder.fcmp_ordered("<", value, above), value, above)
            below = builder.select(builder.fcmp_ordered("<=", below, reach), below, last)
            cell = builder.fptosi(below, _vector(_I32))
            _store(builder, builder.trunc(cell, _vector(_I16)), array(7).data, place, mask)
            if mask is not None:
                cell = builder.select(mask, cell, _vector(_I32, LAST))
            least = builder.load(lowest)
            less = builder.icmp_signed("<", cell, least)
            builder.store(builder.select(less, cell, least), lowest)

        n = builder.extract_value(given.shape, 0)
        whole = builder.and_(n, _I64(-BLOCK))
        with cgutils.for_range(builder, builder.udiv(whole, _I64(BLOCK))) as loop:
            block(builder.mul(loop.index, _I64(BLOCK)), None)
        with builder.if_then(builder.icmp_unsigned("<", whole, n)):
            left = _spread(builder, builder.trunc(builder.sub(n, whole), _I32))
            lanes = ir.Constant(_vector(_I32), list(range(BLOCK)))
            block(whole, builder.icmp_unsigned("<", lanes, left))
        results = [
            _call(
                builder, f"llvm.vector.reduce.{name}.v{BLOCK}i32", builder.load(kept), returns=_I32
            )
            for name, kept in (("smin", lowest), ("add", odd))
        ]
        return context.make_tuple(builder, signature.return_type, results)

    returns = _tuple((types.int32, types.int32))
    return returns(values, weight, offset, number, number, number, row, cells), generate

"""LLVM vectors: instructions that numba compiles, where a loop of its own wouldn't vectorise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic
_get_or_insert: Any = cgutils.get_or_insert_function
alloca: Any = cgutils.alloca_once_value
global_constant: Any = cgutils.global_constant
carray: Any = numba.carray  # type: ignore[attr-defined]

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()


def arrays(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Return the arrays that an intrinsic is given: `data` and `shape` of each."""
    kinds = zip(signature.args, args, strict=True)
    return [context.make_array(kind)(context, builder, value) for kind, value in kinds]


def vector(element: Any, count: int, values: Any = None) -> Any:
    """Return a kind of vector, or a constant: of one value, or of a list of them."""
    kind = ir.VectorType(element, count)
    if values is None:
        return kind
    return ir.Constant(kind, values if isinstance(values, list) else [values] * count)


def call(builder: Any, name: str, *args: Any, returns: Any = None) -> Any:
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(returns or ir.VoidType(), [arg.type for arg in args])
    return builder.call(_get_or_insert(builder.module, kind, name), args)


def spread(builder: Any, value: Any, count: int) -> Any:
    """Return a vector of copies of a value."""
    nothing = ir.Constant(vector(value.type, count), ir.Undefined)
    first = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(first, nothing, vector(I32, count, 0))


def halved(builder: Any, values: Any) -> Any:
    """Return the sum of n lanes, n a power of two: lane i and lane i + n / 2, then + n / 4 .. 1."""
    half = values.type.count // 2
    while half:
        sides = [
            builder.shuffle_vector(
                values, values, vector(I32, half, list(range(start, start + half)))
            )
            for start in (0, half)
        ]
        values = builder.fadd(*sides)
        half //= 2
    return builder.extract_element(values, I32(0))


@contextmanager
def rolled(builder: Any, count: Any) -> Iterator[Any]:
    """Write a loop that LLVM does not unroll, as its registers would not do for two rounds."""
    with cgutils.for_range(builder, count) as loop:
        yield loop
        last = builder.basic_block
    module = builder.module
    name = ir.values.MDValue(module, (), str(len(module.metadata)))  # a node that names itself
    name.operands = name, module.add_metadata(["llvm.loop.unroll.disable"])
    last.terminator.set_metadata("llvm.loop", name)


def clear(builder: Any, places: Iterable[Iterable[Any]]) -> None:
    """Write zeros to places of memory, some of each of some."""
    for place in (place for own in places for place in own):
        builder.store(place.type.pointee(None), place)


def for_blocks(builder: Any, n: Any, count: int, body: Callable[[Any, Any], None]) -> None:
    """Write `body` for n places, so many at a time: given the first, and which are below n."""
    whole = builder.and_(n, I64(-count))
    with cgutils.for_range(builder, builder.udiv(whole, I64(count))) as loop:
        body(builder.mul(loop.index, I64(count)), vector(I1, count, 1))
    with builder.if_then(builder.icmp_unsigned("<", whole, n)):
        places = builder.add(spread(builder, whole, count), vector(I64, count, list(range(count))))
        body(whole, builder.icmp_unsigned("<", places, spread(builder, n, count)))


def _address(builder: Any, kind: Any, start: Any, place: Any) -> Any:
    return builder.bitcast(builder.gep(start, [place]), kind.as_pointer())


def _size(element: Any) -> tuple[str, int]:
    """Return LLVM's name of an element, and its bytes."""
    if isinstance(element, ir.IntType):
        return f"i{element.width}", element.width // 8
    return {FLOAT: ("f32", 4), DOUBLE: ("f64", 8)}[element]


def load(builder: Any, count: int, start: Any, place: Any, mask: Any) -> Any:
    """Return so many elements of a row from a place on; zeros where a mask is unset."""
    element = start.type.pointee
    (name, size), kind = _size(element), vector(element, count)
    address = _address(builder, kind, start, place)
    name, zeros = f"llvm.masked.load.v{count}{name}.p0", vector(element, count, 0)
    return call(builder, name, address, I32(size), mask, zeros, returns=kind)


def store(builder: Any, values: Any, start: Any, place: Any, mask: Any) -> None:
    """Write a vector to a row from a place on, where a mask is set."""
    (name, size), count = _size(values.type.element), values.type.count
    address = _address(builder, values.type, start, place)
    call(builder, f"llvm.masked.store.v{count}{name}.p0", values, address, I32(size), mask)


@intrinsic
def trailing_zeros(typing_context, number):  # type: ignore[no-untyped-def]
    """Return the place of the lowest bit of a uint32 that is not zero."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return call(builder, "llvm.cttz.i32", args[0], I1(1), returns=I32)

    return types.int32(types.uint32), generate


@intrinsic
def pointer(typing_context, address):  # type: ignore[no-untyped-def]
    """Return an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), generate

"""Instructions of Intel's matrix unit (AMX), called through LLVM as numba compiles.

The unit multiplies whole numbers of 8 bits some thirty times as fast as vector instructions
multiply float32, and adds up without rounding. A *step* is what its tiles hold of a row: 64
columns, each number in three digits. `products` says what for.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import llvmlite.binding
import numba.core.config
import numpy as np
from numba import types
from numba.core import cgutils

from streameval.distances.llvm import FLOAT, I8, I32, I64, call, intrinsic, spread, vector
from streameval.typing import ByteArray

TILE_ROWS = 16
QUERIES = 32  # rows of a panel of queries: two tiles
ITEMS = 16  # rows of a panel of gallery rows: one
STEP = 64  # columns of a tile
DIGITS = 3  # of a number
TILE_BYTES = 1024
QUERY_STEP_BYTES = DIGITS * 2 * TILE_BYTES
ITEM_STEP_BYTES = DIGITS * TILE_BYTES
SUMS_BYTES = DIGITS * 2 * TILE_BYTES  # of the products of two panels
LINE_BYTES = 64
AHEAD_BYTES = 6 * LINE_BYTES  # brought into L2 in each step

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64

_POINTER = I8.as_pointer()


def is_native() -> bool:
    """Tell whether numba compiles for this very processor, so that it takes its instructions."""
    chosen: Any = numba.core.config
    return not chosen.CPU_NAME and chosen.CPU_FEATURES is None and bool(chosen.ENABLE_AVX)


@cache
def supported() -> bool:
    """Tell whether this machine has the unit, and the system lets this process use it."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not is_native():
        return False
    features = llvmlite.binding.get_host_cpu_features()
    needed = ("amx-tile", "amx-int8", "avx512f", "avx512bw", "avx512vnni")
    if not all(features.get(name) for name in needed):
        return False
    request = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(request == 0)


@cache
def configuration() -> ByteArray:
    """Return what `configure` is given: palette 1, eight tiles of 16 rows of 64 bytes."""
    out = np.zeros(64, np.uint8)
    out[0] = 1
    out[16:32].view(np.uint16)[:] = 64
    out[48:56] = 16
    return out


def at_offset(builder: Any, start: Any, offset: Any, kind: Any = I8) -> Any:
    """Return the address of a value of some kind, so many bytes from another address."""
    offset = I64(offset) if isinstance(offset, int) else offset
    return builder.bitcast(builder.gep(start, [offset]), kind.as_pointer())


def instruction(kinds: str) -> Callable[[Callable[..., None]], Any]:
    """Return what makes an intrinsic of a function of a builder and of values.

    The kind of each is a letter: `a` an address, `n` a number, `b` a boolean.
    """

    def declare(write: Callable[..., None]) -> Any:
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            values = (
                builder.inttoptr(value, _POINTER) if kind == "a" else value
                for kind, value in zip(kinds, args, strict=True)
            )
            write(builder, *values)
            return context.get_dummy_value()

        @intrinsic
        @wraps(write)
        def written(typing_context, *args):  # type: ignore[no-untyped-def]
            taken = (types.boolean if kind == "b" else types.intp for kind in kinds)
            return types.none(*taken), generate

        return written

    return declare


@instruction("a")
def configure(builder, address):  # type: ignore[no-untyped-def]
    """Configure the unit for this thread, by the 64 bytes at an address."""
    call(builder, "llvm.x86.ldtilecfg", address)


@instruction("")
def release(builder):  # type: ignore[no-untyped-def]
    """Give the unit's registers back."""
    call(builder, "llvm.x86.tilerelease")


def _row_writer(
    builder: Any, sums: Any, out: Any, stride: Any, by_query: Any, by_item: Any
) -> Callable[[Any], None]:
    """Return what writes a row of products: of the sums of three weights, and of scales."""
    floats, whole = vector(FLOAT, ITEMS), vector(I32, ITEMS)
    item_scale = builder.load(at_offset(builder, by_item, 0, floats), align=4)

    def write(row: Any) -> None:
        of_row = builder.mul(row, I64(4 * ITEMS))
        total = None
        for level in reversed(range(DIGITS)):
            start = at_offset(builder, sums, 2 * level * TILE_BYTES)
            number = builder.load(at_offset(builder, start, of_row, whole), align=LINE_BYTES)
            value = builder.sitofp(number, floats)
            if total is not None:
                base = vector(FLOAT, ITEMS, 256.0 ** (DIGITS - 1 - level))
                value = call(builder, "llvm.fma.v16f32", value, base, total, returns=floats)
            total = value
        scale = builder.load(at_offset(builder, by_query, builder.mul(row, I64(4)), FLOAT), align=4)
        total = builder.fmul(builder.fmul(total, spread(builder, scale, ITEMS)), item_scale)
        builder.store(total, at_offset(builder, out, builder.mul(row, stride), floats), align=4)

    return write


@instruction("aanaa")
def write_rows(builder, sums, out, stride, by_query, by_item):  # type: ignore[no-untyped-def]
    """Write 32 × 16 products from their sums; all but `stride`, in bytes, are addresses."""
    write = _row_writer(builder, sums, out, stride, by_query, by_item)
    with cgutils.for_range(builder, I64(QUERIES)) as loop:
        write(loop.index)


@instruction("aanaaaanaa")
def multiply_panels(  # type: ignore[no-untyped-def]
    builder, queries, items, steps, sums, ahead, before, out, stride, by_query, by_item
):
    """Add up the 32 × 16 products of two panels, and write those of the panels before.

    All but `steps` and `stride` are addresses. What is `before`, `out`, `stride`, `by_query`
    and `by_item` is as of `write_rows`: vector instructions that find time between those of the
    unit. Meanwhile, ``steps * AHEAD_BYTES`` are brought into L2 from `ahead` on.

    Tiles 0–5 add up: of digits whose weights multiply to 256⁴, 256³ and 256², each of two tiles
    of queries. Tile 6 holds queries, which come once, past L1; tile 7 gallery rows, which stay
    there.
    """
    write = _row_writer(builder, before, out, stride, by_query, by_item)
    pauses = builder.mul(steps, I64(2))
    rows = builder.sdiv(builder.add(pauses, I64(QUERIES - 1)), pauses)  # in each pause
    for tile in range(6):
        call(builder, "llvm.x86.tilezero", I8(tile))
    with cgutils.for_range(builder, steps) as loop:
        query_step = at_offset(builder, queries, builder.mul(loop.index, I64(QUERY_STEP_BYTES)))
        item_step = at_offset(builder, items, builder.mul(loop.index, I64(ITEM_STEP_BYTES)))
        lines = at_offset(builder, ahead, builder.mul(loop.index, I64(AHEAD_BYTES)))
        loaded = -1
        for half in range(2):
            for digit in range(DIGITS):
                source = at_offset(builder, query_step, (2 * digit + half) * TILE_BYTES)
                call(builder, "llvm.x86.tileloaddt164", I8(6), source, I64(64))
                others = list(range(DIGITS - digit))
                for other in reversed(others) if digit % 2 else others:
                    if other != loaded:
                        source = at_offset(builder, item_step, other * TILE_BYTES)
                        call(builder, "llvm.x86.tileloadd64", I8(7), source, I64(64))
                        loaded = other
                    tile = I8(2 * (digit + other) + half)
                    call(builder, "llvm.x86.tdpbssd", tile, I8(6), I8(7))
                line = at_offset(builder, lines, (DIGITS * half + digit) * LINE_BYTES)
                call(builder, "llvm.prefetch.p0", line, I32(0), I32(2), I32(1))
            pause = builder.add(builder.mul(loop.index, I64(2)), I64(half))
            first = builder.mul(pause, rows)
            left_over = builder.sub(I64(QUERIES), first)
            fewer = builder.icmp_signed("<", left_over, rows)
            count = builder.select(fewer, left_over, rows)
            with cgutils.for_range(builder, count) as inner:
                write(builder.add(first, inner.index))
    for tile in range(6):
        target = at_offset(builder, sums, tile * TILE_BYTES)
        call(builder, "llvm.x86.tilestored64", I8(tile), target, I64(64))


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose 16 × 16 values of 32 bits: blocks of 1, 2, 4 and 8 change places."""
    n = len(rows)
    size = 1
    while size < n:
        swapped = list(rows)
        kept = [j if not j & size else n + j - size for j in range(n)]
        moved = [j + size if not j & size else n + j for j in range(n)]
        for i in range(n):
            if not i & size:
                pair = rows[i], rows[i + size]
                swapped[i] = builder.shuffle_vector(*pair, vector(I32, n, kept))
                swapped[i + size] = builder.shuffle_vector(*pair, vector(I32, n, moved))
        rows = swapped
        size *= 2
    return rows


def _digits(builder: Any, x: Any) -> list[Any]:
    """Return the digits of 64 whole numbers: bytes less 128, as 16 vectors of 32 bits have them.

    With 128 added to each digit they are the bytes of a number.
    """
    bias = vector(I32, STEP, 0x808080)
    whole = builder.fptosi(call(builder, "llvm.rint.v64f32", x, returns=x.type), vector(I32, STEP))
    number = builder.add(whole, bias)
    digits = []
    for digit in range(DIGITS):
        shifted = builder.lshr(number, vector(I32, STEP, 8 * (DIGITS - 1 - digit)))
        byte = builder.trunc(shifted, vector(I8, STEP))
        byte = builder.xor(byte, vector(I8, STEP, 0x80))
        digits.append(builder.bitcast(byte, vector(I32, TILE_ROWS)))
    return digits


def _add_squares(builder: Any, digits: Any, sums: Any) -> Any:
    """Add the squares of 64 digits to sums in 16 lanes: d² = (d + 128) d − 128 d."""
    kind = digits.type
    biased = builder.xor(digits, vector(I32, TILE_ROWS, 0x80808080))
    name = "llvm.x86.avx512.vpdpbusd.512"
    products = call(builder, name, sums, biased, digits, returns=kind)
    zeros, bias = vector(I32, TILE_ROWS, 0), vector(I32, TILE_ROWS, 0x80808080)
    return builder.sub(products, call(builder, name, zeros, bias, digits, returns=kind))


@instruction("anaanba")
def pack_step(builder, rows, stride, scales, target, apart, across, squares):  # type: ignore[no-untyped-def]
    """Write 16 rows of a step: a tile a digit, so far `apart`.

    `rows`, `scales`, `target` and `squares` are addresses; the last of [2, 16, 16] int32, to
    which the squares of the second and third digits of each row are added, in 16 lanes.
    """
    lanes = vector(I32, TILE_ROWS)
    digits: list[list[Any]] = [[] for _ in range(DIGITS)]
    for row in range(TILE_ROWS):
        address = at_offset(builder, rows, builder.mul(stride, I64(row)), vector(FLOAT, STEP))
        values = builder.load(address, align=4)
        scale = builder.load(at_offset(builder, scales, 4 * row, FLOAT), align=4)
        scaled = builder.fmul(values, spread(builder, scale, STEP))
        for digit, of_row in enumerate(_digits(builder, scaled)):
            digits[digit].append(of_row)
            if digit:
                offset = ((digit - 1) * TILE_ROWS + row) * LINE_BYTES
                address = at_offset(builder, squares, offset, lanes)
                total = builder.load(address, align=4)
                builder.store(_add_squares(builder, of_row, total), address, align=4)

    with builder.if_else(across) as (then, otherwise):
        for branch, change in ((then, True), (otherwise, False)):
            with branch:
                for digit, tile in enumerate(digits):
                    written = transposed(builder, tile) if change else tile
                    start = at_offset(builder, target, builder.mul(apart, I64(digit)))
                    for row, values in enumerate(written):
                        address = at_offset(builder, start, LINE_BYTES * row, lanes)
                        builder.store(values, address, align=LINE_BYTES)

"""Instructions of Intel's matrix unit (AMX), called through LLVM as numba compiles.

The unit multiplies bfloat16 some twenty times as fast as vector instructions multiply float32,
and adds up in float32. A *step* is what its tiles hold of 32 rows: 32 columns, each number in
three parts of bfloat16. `products` says what for.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import Any

import llvmlite.binding
import numba.core.config
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

PANEL = 32  # rows of two tiles
STEP = 32  # columns of a tile
PARTS = 3  # of a number
TILE_BYTES = 1024
STEP_BYTES = PARTS * 2 * TILE_BYTES
LINE_BYTES = 64
AHEAD_BYTES = 12 * LINE_BYTES  # brought into L2 in each step

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_POINTER = _I8.as_pointer()
_NUMBER = types.intp
_instruction: Any = intrinsic
_get_or_insert: Any = cgutils.get_or_insert_function


@cache
def supported() -> bool:
    """Tell whether this machine has the unit, and the system lets this process use it."""
    chosen: Any = numba.core.config
    if sys.platform != "linux" or platform.machine() != "x86_64" or chosen.CPU_NAME:
        return False
    features = llvmlite.binding.get_host_cpu_features()
    if not all(features.get(name) for name in ("amx-tile", "amx-bf16", "avx512f")):
        return False
    request = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(request == 0)


@cache
def configuration() -> npt.NDArray[np.uint8]:
    """Return what `configure` is given: palette 1, eight tiles of 16 rows of 64 bytes."""
    out = np.zeros(64, np.uint8)
    out[0] = 1
    out[16:32].view(np.uint16)[:] = 64
    out[48:56] = 16
    return out


def _call(builder: Any, name: str, *args: Any) -> None:
    """Call an LLVM intrinsic that returns nothing."""
    kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
    builder.call(_get_or_insert(builder.module, kind, name), args)


@_instruction
def configure(typing_context, address):  # type: ignore[no-untyped-def]
    """Configure the unit for this thread, by the 64 bytes at an address."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _call(builder, "llvm.x86.ldtilecfg", builder.inttoptr(args[0], _POINTER))
        return context.get_dummy_value()

    return types.none(_NUMBER), generate


@_instruction
def release(typing_context):  # type: ignore[no-untyped-def]
    """Give the unit's registers back."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _call(builder, "llvm.x86.tilerelease")
        return context.get_dummy_value()

    return types.none(), generate


@_instruction
def multiply_panels(typing_context, queries, gallery, steps, out, stride, ahead):  # type: ignore[no-untyped-def]
    """Write the 32 × 32 products of two panels; all but `steps` and `stride` are addresses.

    Tiles 0–3 add up, 4 and 5 hold queries, 6 and 7 gallery rows. Meanwhile, ``steps *
    AHEAD_BYTES`` are brought into L2 from `ahead` on.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        steps, stride = args[2], args[4]
        left, right, out, ahead = (builder.inttoptr(args[i], _POINTER) for i in (0, 1, 3, 5))
        for tile in range(4):
            _call(builder, "llvm.x86.tilezero", _I8(tile))
        with cgutils.for_range(builder, steps) as loop:
            step = builder.mul(loop.index, _I64(STEP_BYTES))

            def load(tile: int, panel: Any, part: int) -> None:
                for half in range(2):
                    offset = builder.add(step, _I64((2 * part + half) * TILE_BYTES))
                    address = builder.gep(panel, [offset])
                    _call(builder, "llvm.x86.tileloadd64", _I8(tile + half), address, _I64(64))

            lines = builder.gep(ahead, [builder.mul(loop.index, _I64(AHEAD_BYTES))])

            def add(product: int) -> None:
                for half in range(2):
                    line = builder.gep(lines, [_I64((2 * product + half) * LINE_BYTES)])
                    _call(builder, "llvm.prefetch.p0", line, _I32(0), _I32(2), _I32(1))
                for tile in range(4):
                    one, other = _I8(4 + tile // 2), _I8(6 + tile % 2)
                    _call(builder, "llvm.x86.tdpbf16ps", _I8(tile), one, other)

            load(4, left, 1)
            load(6, right, 1)
            add(0)  # b b'
            load(6, right, 0)
            add(1)  # b a'
            load(4, left, 2)
            add(2)  # c a'
            load(4, left, 0)
            add(3)  # a a'
            load(6, right, 1)
            add(4)  # a b'
            load(6, right, 2)
            add(5)  # a c'
        for tile in range(4):
            offset = builder.add(builder.mul(stride, _I64(16 * (tile // 2))), _I64(64 * (tile % 2)))
            _call(builder, "llvm.x86.tilestored64", _I8(tile), builder.gep(out, [offset]), stride)
        return context.get_dummy_value()

    return types.none(*6 * [_NUMBER]), generate


def _vector(element: Any, count: int, values: Any = None) -> Any:
    kind = ir.VectorType(element, count)
    return kind if values is None else ir.Constant(kind, values)


def _parts(builder: Any, x: Any) -> list[Any]:
    """Return the three parts of 32 float32 values, each as 16 pairs of bfloat16."""

    def constant(value: int) -> Any:
        return _vector(_I32, STEP, [value] * STEP)

    parts = []
    for part in range(PARTS):
        bits = builder.bitcast(x, _vector(_I32, STEP))
        even = builder.and_(builder.lshr(bits, constant(16)), constant(1))
        bits = builder.add(builder.add(bits, even), constant(0x7FFF))  # to nearest, ties to even
        bits = builder.lshr(bits, constant(16))
        pairs = builder.trunc(bits, _vector(_I16, STEP))
        parts.append(builder.bitcast(pairs, _vector(_I32, STEP // 2)))
        if part < PARTS - 1:
            taken = builder.shl(bits, constant(16))
            x = builder.fsub(x, builder.bitcast(taken, _vector(ir.FloatType(), STEP)))
    return parts


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
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
                swapped[i] = builder.shuffle_vector(*pair, _vector(_I32, n, kept))
                swapped[i + size] = builder.shuffle_vector(*pair, _vector(_I32, n, moved))
        rows = swapped
        size *= 2
    return rows


@_instruction
def pack_step(typing_context, rows, stride, panel, transposed):  # type: ignore[no-untyped-def]
    """Write 16 rows of a step: three tiles, two tiles apart; `rows` and `panel` are addresses."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        source, target = (builder.inttoptr(args[i], _POINTER) for i in (0, 2))
        parts: list[list[Any]] = [[] for _ in range(PARTS)]
        for row in range(16):
            address = builder.gep(source, [builder.mul(args[1], _I64(row))])
            kind = _vector(ir.FloatType(), STEP).as_pointer()
            values = builder.load(builder.bitcast(address, kind), align=4)
            for part, pairs in enumerate(_parts(builder, values)):
                parts[part].append(pairs)

        def store(part: int, tile: list[Any]) -> None:
            for row, pairs in enumerate(tile):
                address = builder.gep(target, [_I64(2 * part * TILE_BYTES + 64 * row)])
                kind = pairs.type.as_pointer()
                builder.store(pairs, builder.bitcast(address, kind), align=LINE_BYTES)

        with builder.if_else(args[3]) as (then, otherwise):
            for branch, change in ((then, True), (otherwise, False)):
                with branch:
                    for part, tile in enumerate(parts):
                        store(part, _transpose(builder, tile) if change else tile)
        return context.get_dummy_value()

    return types.none(_NUMBER, _NUMBER, _NUMBER, types.boolean), generate

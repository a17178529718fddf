"""Prefetching rows into the cache: numba has no word for it, LLVM has.

The few rows that need a canonical distance are scattered over a gallery block that is larger
than the cache; asking for them a few pairs ahead halves what each costs (benchmarks/NOTES.md).
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes


@intrinsic
def _prefetch(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of ``array[row, column]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, arguments[0])
        pointer: Any = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
            context, builder, kind, view, list(arguments[1:]), wraparound=False
        )
        word = ir.IntType(32)
        byte = ir.IntType(8).as_pointer()
        declared = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, declared, "llvm.prefetch.p0"
        )
        read, keep, data = word(0), word(3), word(1)
        builder.call(function, [builder.bitcast(pointer, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate


@numba.njit(nogil=True, cache=True)
def prefetch_row(rows, row):  # type: ignore[no-untyped-def]
    """Ask for all cache lines of a row."""
    for column in range(0, rows.shape[1], LINE // rows.itemsize):
        _prefetch(rows, row, column)  # type: ignore[call-arg]

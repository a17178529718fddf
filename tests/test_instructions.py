"""Instructions that few processors have: LLVM compiles each of them, whatever this one has."""

from __future__ import annotations

import platform
from types import SimpleNamespace
from typing import Any

import llvmlite.binding
import pytest
from llvmlite import ir
from numba.core import types
from support.kernels import matrix_unit, sieve_units, word_unit

PROCESSOR = "sapphirerapids"  # has all of them
KINDS = {types.intp: ir.IntType(64), types.boolean: ir.IntType(1)}
DECLARED = {
    value._defn.__name__: value._defn
    for module in (matrix_unit, sieve_units, word_unit)
    for value in vars(module).values()
    if hasattr(getattr(value, "_defn", None), "__wrapped__")
}


def written(instruction: Any) -> ir.Module:
    """Return a module of one function, that takes what an instruction does and is that alone."""
    signature, generate = instruction(None)
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [KINDS[taken] for taken in signature.args])
    function = ir.Function(module, kind, "instruction")
    builder = ir.IRBuilder(function.append_basic_block())
    generate(SimpleNamespace(get_dummy_value=lambda: None), builder, signature, function.args)
    builder.ret_void()
    return module


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM may have no other target")
@pytest.mark.parametrize("name", DECLARED)
def test_an_instruction_compiles(name: str) -> None:
    module = llvmlite.binding.parse_assembly(str(written(DECLARED[name])))
    module.verify()
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    target = llvmlite.binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=PROCESSOR)
    assert machine.emit_object(module)

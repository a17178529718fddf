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

only_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM has no other target")
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


def compiled(name: str, processor: str) -> tuple[llvmlite.binding.TargetMachine, Any]:
    """Return what compiles for a processor, and an instruction as it would be compiled there."""
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    target = llvmlite.binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=processor)
    module = llvmlite.binding.parse_assembly(str(written(DECLARED[name])))
    module.verify()
    options = llvmlite.binding.create_pipeline_tuning_options(speed_level=3)
    passes = llvmlite.binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine, module


@only_x86
@pytest.mark.parametrize("name", DECLARED)
def test_an_instruction_compiles(name: str) -> None:
    machine, module = compiled(name, "sapphirerapids")  # has all of them
    assert machine.emit_object(module)


@only_x86
@pytest.mark.parametrize("processor", ["cascadelake", "icelake-server", "znver4", "znver5"])
@pytest.mark.parametrize(
    ("name", "sums", "add"), [("multiply_widely", 56, "vpdpwssds"), ("mark_wide", 96, "vpdpbusd")]
)
def test_sums_stay_in_registers(name: str, sums: int, add: str, processor: str) -> None:
    machine, module = compiled(name, processor)
    lines = machine.emit_assembly(module).splitlines()
    adding = [number for number, line in enumerate(lines) if line.split()[:1] == [add]]
    assert len(adding) == sums
    loop = lines[adding[0] : adding[-1] + 1]
    assert not [line for line in loop if "%zmm" in line and "(%rsp)" in line]


@only_x86
@pytest.mark.parametrize("processor", ["haswell", "skylake", "alderlake", "znver3"])
@pytest.mark.parametrize(
    ("name", "add"), [("multiply_narrowly", "vpmaddwd"), ("mark_narrow", "vpmaddubsw")]
)
def test_narrow_vectors_need_no_more_than_avx2(name: str, add: str, processor: str) -> None:
    machine, module = compiled(name, processor)
    assembly = machine.emit_assembly(module)
    assert add in assembly
    assert "%zmm" not in assembly
    assert machine.emit_object(module)

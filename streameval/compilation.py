"""Compilation of kernels, which are kept from one process to the next where there is room."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numba
from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler import CompileResult
from numba.core.environment import Environment
from numba.core.runtime.nrt import rtsys
from numba.core.types import unliteral

from streameval.errors import warn


def compiled(function: Any = None, *, fastmath: Any = False, inline: Any = "never") -> Any:
    """Compile a function when it is first called, without Python's lock; a decorator.

    As ``numba.njit(nogil=True, cache=True)``, but a cache that can't be written is no error.

    Parameters
    ----------
    function : callable
    fastmath, inline
        As ``numba.njit`` takes them.
    """
    if function is None:
        return partial(compiled, fastmath=fastmath, inline=inline)
    njit: Any = numba.njit
    kernel = njit(nogil=True, fastmath=fastmath, inline=inline, no_cfunc_wrapper=True)(function)
    kernel._cache = _Cache(function)
    kernel.get_call_template = partial(_call_of_any_value, kernel.get_call_template)
    return kernel


def _call_of_any_value(call: Any, arguments: Any, named: Any) -> Any:
    """Return how a kernel calls another; numba would compile that one for each constant given."""
    type_of: Any = unliteral
    given = {name: type_of(kind) for name, kind in named.items()}
    return call(tuple(map(type_of, arguments)), given)


_Usual: Any = FunctionCache
_UsualForm: Any = CompileResultCacheImpl
_Result: Any = CompileResult
_Named = tuple[str, list[Any], str]  # an environment's module, its constants, its name


class _Form(_UsualForm):  # type: ignore[misc]
    """A kernel as it is kept; what only the compilation of others asks for is left until then.

    Numba parses the code that a kernel is inlined from, and imports the modules that it was
    compiled from: half of the time that it takes to load one.
    """

    def get_filename_base(self, *given: Any) -> str:
        """Return the name of the files; numba can't read what they hold, in a form of a number."""
        return f"{super().get_filename_base(*given)}.linked-late-2"

    def reduce(self, kernel: Any) -> tuple[Any, ...]:
        """Return what is kept of a compiled kernel."""
        (name, _, (machine, bitcode)), about, own, *rest, others = kernel._reduce()
        names = about.llvm_func_name, about.llvm_cpython_wrapper_name
        entries = "\n".join(f'define void @"{one}"() {{ ret void }}' for one in names)
        library = name, "object", (machine, llvm.parse_assembly(entries).as_bitcode())
        return library, bitcode, about, _named(own), rest, [_named(one) for one in others]

    def rebuild(self, target_context: Any, kept: tuple[Any, ...]) -> Any:
        """Return a compiled kernel of what has been kept."""
        library, bitcode, about, own, rest, others = kept
        environments = tuple(_environment(*one) for one in others)
        kernel: Any = _Result._rebuild(
            target_context, library, about, _environment(*own), *rest, environments
        )
        kernel.library._get_module_for_linking = cache(partial(llvm.parse_bitcode, bitcode))
        return kernel


def _named(environment: Any) -> _Named:
    _, (module, constants, name) = environment.__reduce__()
    return module, constants, name


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return the environment of compiled code, of whose module it needs no more than the name."""
    environment: Any = Environment._memo.get(name)
    if environment is None:
        environment = Environment({"__name__": module})
        environment.consts[:] = constants
        environment.env_name = name
        Environment._memo[name] = environment
    return environment


class _Cache(_Usual):  # type: ignore[misc]
    _impl_class = _Form

    def __init__(self, function: Any) -> None:
        self._py_func = function

    def _may_keep(self) -> bool:
        """Return whether there is a folder to keep the kernel in; look for one when it is called.

        Numba writes a file to see whether it can.
        """
        if "_enabled" not in vars(self):
            try:
                super().__init__(self._py_func)
            except (OSError, RuntimeError):  # numba knows of no folder
                self.disable()
                _say("anywhere", "neither beside their sources nor in a folder of the user")
        return bool(self._enabled)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel that has been kept; None where it has to be compiled.

        Numba would load all that it compiles with first, and SciPy for it: a quarter of a second.
        """
        rtsys.initialize(target_context)
        if not self._may_keep():
            return None
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, where that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say(f"in {self.cache_path}", error.strerror or str(error))


@cache
def _say(where: str, reason: str) -> None:
    """Warn, once a process, that compiled functions are not kept."""
    warn(
        f"compiled kernels can't be kept {where} ({reason}): each process compiles them again; "
        "make room, or name another folder in NUMBA_CACHE_DIR"
    )

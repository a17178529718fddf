"""Compilation of kernels, which are kept from one process to the next where there is room."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

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
    kernel = njit(nogil=True, fastmath=fastmath, inline=inline)(function)
    kernel._cache = _Cache(function)
    return kernel


_Usual: Any = FunctionCache


class _Cache(_Usual):  # type: ignore[misc]
    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel that has been kept; None where it has to be compiled.

        Numba would load all that it compiles with first, and SciPy for it: a quarter of a second.
        """
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, where that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say(self.cache_path, error.strerror or str(error))


@cache
def _say(folder: str, reason: str) -> None:
    """Warn, once a process, that compiled functions are not kept."""
    warn(
        f"compiled kernels can't be kept in {folder} ({reason}): each process compiles them again; "
        "make room, or name another folder in NUMBA_CACHE_DIR"
    )

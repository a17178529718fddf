"""Array objects of other packages that no path leads back to: read through the object."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streameval.arrays.array import Array
from streameval.errors import InputError, OptionError

Reopened = tuple[Callable[..., Array], tuple[type[Array], bytes, str | None], dict[str, bool]]


class ObjectArray(Array):
    """An array that an object of another package holds: a Dask graph, an HDF5 file being written.

    To know its content, all of it would have to be read: it is recognised by the name that the
    caller gives it. It travels to workers as its package pickles it.

    Attributes
    ----------
    kind : str
        What messages call it without a name: ``Dask array``.
    """

    in_memory = True
    kind: str

    def __init__(self, held: Any, name: str | None = None) -> None:
        self._held, self._name = held, name
        self.uri = name or self.kind

    def __reduce__(self) -> Reopened:
        import cloudpickle

        with self._sending():
            held = cloudpickle.dumps(self._held)
        return _reopen, (type(self), held, self._name), {"fill_missing": self.fill_missing}

    @property
    def identity(self) -> str:
        """Its name, shape and dtype.

        Raises
        ------
        OptionError
            If it has no name.
        """
        if self._name is None:
            raise OptionError(
                f"{self.uri} {self.shape} has no name, and a run that is resumed can't tell it "
                "from others: give the path of what it was made from, or a name, as in "
                "Features(query, gallery, name=...)"
            )
        return f"{self._name} {self.shape} {self.dtype}"

    @property
    def sent_bytes(self) -> int:
        """Bytes that are sent to each worker: of the object as it is pickled."""
        import cloudpickle

        stream, buffers = io.BytesIO(), [0]

        def count(buffer: Any) -> None:  # which is not copied
            buffers.append(buffer.raw().nbytes)

        with self._sending():
            cloudpickle.CloudPickler(stream, 5, count).dump(self._held)
        return stream.tell() + sum(buffers)

    @contextmanager
    def _sending(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise InputError(
                f"{self.uri} {self.shape} can't be sent to workers ({error}): save it where all "
                "workers can read it, and give the path, or evaluate on threads"
            ) from error


def _reopen(kind: type[ObjectArray], pickled: bytes, name: str | None) -> Array:
    import cloudpickle

    return kind(cloudpickle.loads(pickled), name)

"""Finished work beside ``--out DIR``, in ``DIR.progress``, for as long as there is no result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from streameval.errors import OptionError, OutputError

if TYPE_CHECKING:
    from streameval.result import Evaluation
    from streameval.run.checkpoint import Checkpoint
    from streameval.run.preparation import Prepared
    from streameval.run.record import Record

SUFFIX = ".progress"
IDENTITY, FINGERPRINTS = "evaluation", "fingerprints"  # in the provenance of a result


class Recording:
    """The record of a run that writes to a folder, or to none: a context.

    Parameters
    ----------
    out : str or None
        Where the result is to be.
    overwrite, resume : bool

    Attributes
    ----------
    record : Record
        Keeps finished work, where `out` is given and the packages for it are installed.

    Raises
    ------
    OptionError
        If there is to be resumed, and nowhere is work kept.
    OutputError
        If there can be no result in that place, or there is work that is not to be resumed.
    """

    def __init__(self, out: str | None, *, overwrite: bool, resume: bool) -> None:
        from streameval.result.folder import check_output
        from streameval.run.checkpoint import Checkpoint, discard
        from streameval.run.record import NO_RECORD
        from streameval.store import check_packages

        self._out, self._overwrite, self._resume = out, overwrite, resume
        self._checkpoint: Checkpoint | None = None
        self._identity = ""
        self._fingerprints: Mapping[str, str] = {}
        if out is None:
            if resume:
                raise OptionError("--resume goes on with the work kept for --out: give --out DIR")
        else:
            target = check_output(out, overwrite=overwrite or resume)
            try:
                check_packages()
            except OptionError:
                if resume:
                    raise
            else:
                folder = Path(os.fspath(target) + SUFFIX)
                if overwrite and not resume:
                    discard(folder)
                self._checkpoint = Checkpoint(folder, resume=resume)
        self.record: Record = self._checkpoint or NO_RECORD

    def start(self, prepared: Prepared) -> tuple[Prepared, Evaluation | None]:
        """Return what is prepared, with the plan of the work that is there; and the result.

        The result is there, and None otherwise, where it is to be resumed and was written.

        Raises
        ------
        OutputError
            If what is there is of another evaluation.
        """
        from streameval.result import Evaluation
        from streameval.run.manifest import identity, manifest

        if self._out is None:
            return prepared, None
        described = manifest(prepared)
        self._identity, self._fingerprints = identity(described), described["inputs"]
        if self._checkpoint is None:
            return prepared, None
        if self._resume and Path(self._out).exists():
            found = Evaluation.load(self._out)
            if found.provenance.get(IDENTITY) == self._identity:
                return prepared, found
            if not self._overwrite:
                raise OutputError(
                    f"{self._out} holds the result of another evaluation, of other inputs or "
                    "options; choose another folder, or replace it: --overwrite"
                )
        return replace(
            prepared, plan=self._checkpoint.start(lambda: described, prepared.plan)
        ), None

    def identified(self, result: Evaluation) -> Evaluation:
        """Return the result with what it is of in its provenance, to be known by again."""
        if not self._identity:
            return result
        told = {IDENTITY: self._identity, FINGERPRINTS: self._fingerprints}
        return replace(result, provenance={**result.provenance, **told})

    def done(self) -> None:
        """Remove what is kept: the result is there."""
        if self._checkpoint is not None:
            self._checkpoint.remove()

    def keep(self) -> None:
        """Keep all that is finished, where work is kept: the result could not be written."""
        if self._checkpoint is not None and self._checkpoint.begun:
            self._checkpoint.commit()

    def remains(self) -> str:
        """Return what to say where the run is interrupted: whether finished work is kept."""
        if self._checkpoint is None or not self._checkpoint.begun:
            return ""
        return f"finished work is kept in {self._out}{SUFFIX}: --resume goes on with it"

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._checkpoint is not None:
            self._checkpoint.__exit__(kind, error, trace)

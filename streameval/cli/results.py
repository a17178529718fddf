"""Where a result is saved, and the finished work beside it until there is a result."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streameval.cli.options import Values
from streameval.cli.signals import Interruption
from streameval.errors import OptionError, OutputError, StreamevalError
from streameval.output import check_new

if TYPE_CHECKING:
    from streameval.result import Evaluation
    from streameval.run.checkpoint import Checkpoint
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

SUFFIX = ".progress"
IDENTITY, FINGERPRINTS = "evaluation", "fingerprints"  # in the provenance of a result


class Output:
    """The folder of ``--out``, with finished work in ``DIR.progress``: a context.

    Without ``--out``, or without the packages for it, no work is kept.

    Parameters
    ----------
    values : mapping of str to object
        Of the command: ``out``, ``overwrite``, ``resume``, ``save_index``.
    interruption : Interruption

    Raises
    ------
    OptionError
        If work is to be resumed, and nowhere is any kept.
    OutputError
        If there can be no result in that place, or there is work that is not to be resumed.
    """

    def __init__(self, values: Values, interruption: Interruption) -> None:
        from streameval.result.saved import check_output
        from streameval.run.checkpoint import Checkpoint, discard
        from streameval.store import check_packages

        self._out, self._overwrite = values["out"], values["overwrite"]
        self._resume, self._interruption = values["resume"], interruption
        self._checkpoint: Checkpoint | None = None
        self._saved: Evaluation | None = None
        again = self._overwrite or self._resume
        if values["save_index"] is not None:
            check_new(values["save_index"], overwrite=again)
        if self._out is None:
            if self._resume:
                raise OptionError("--resume goes on with the work kept for --out: give --out DIR")
            return
        folder = Path(os.fspath(check_output(self._out, overwrite=again)) + SUFFIX)
        try:
            check_packages()
        except OptionError:
            if self._resume:
                raise
            return
        if self._overwrite and not self._resume:
            discard(folder)
        self._checkpoint = Checkpoint(folder, resume=self._resume)
        interruption.remains = self._remains

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._checkpoint is not None:
            self._checkpoint.__exit__(kind, error, trace)

    def count(self, prepared: Prepared, session: Session) -> Evaluation:
        """Return the result: evaluated, or that of the same evaluation which is saved, read again.

        Raises
        ------
        OutputError
            If what is saved is of another evaluation.
        """
        from streameval.run.orchestrator import carry_out
        from streameval.run.provenance import identity, manifest

        if self._out is None:
            return carry_out(prepared, session)
        content = manifest(prepared)
        name = identity(content)
        if self._checkpoint is not None:
            if self._resume and Path(self._out).exists():
                self._saved = self._finished(name)
            if self._saved is not None:
                request = prepared.request
                result = self._saved.with_options(request.options)
                return result if request.group_by is None else result.grouped(request.group_by)
            plan = self._checkpoint.start(lambda: content, prepared.plan)
            prepared = replace(prepared, plan=plan)
            session = replace(session, record=self._checkpoint)
        result = carry_out(prepared, session)
        known = {IDENTITY: name, FINGERPRINTS: content["inputs"]}
        return replace(result, provenance={**result.provenance, **known})

    def _finished(self, identity: str) -> Evaluation | None:
        """Return the result that is saved, if it is of the same evaluation."""
        from streameval.result import Evaluation

        saved = Evaluation.load(self._out)
        if saved.provenance.get(IDENTITY) == identity:
            return saved
        if not self._overwrite:
            raise OutputError(
                f"{self._out} holds the result of another evaluation, of other inputs or "
                "options; choose another folder, or replace it: --overwrite"
            )
        return None

    def holds(self, result: Evaluation) -> bool:
        """Return whether what is saved has the same options, groups and intervals."""
        import numpy as np

        saved = self._saved
        if saved is None:
            return False
        for name in ("options", "group_by", "resampling"):
            if getattr(saved, name) != getattr(result, name):
                return False
        by = str(result.group_by)  # of no column: without groups, or cam-pair
        return np.array_equal(saved.columns.get(by, ()), result.columns.get(by, ()))

    def save(self, result: Evaluation) -> Exception | None:
        """Save the result where it is not there; return the error where it can't be written.

        It may be the work of hours, and is printed all the same; finished work is kept then.
        """
        if self._out is None:
            return None
        replaces = self._overwrite or self._saved is not None
        try:
            if not self.holds(result):
                save(result, self._out, overwrite=replaces, interruption=self._interruption)
            if self._checkpoint is not None:
                self._checkpoint.remove()
        except (StreamevalError, OSError, MemoryError) as error:
            if self._checkpoint is not None and self._checkpoint.begun:
                self._checkpoint.commit()
            return error
        return None

    def _remains(self) -> str:
        """Return what to say where the run is interrupted: whether finished work is kept."""
        if self._checkpoint is None or not self._checkpoint.begun:
            return ""
        return f"finished work is kept in {self._out}{SUFFIX}: --resume goes on with it"


def save(result: Evaluation, out: str, *, overwrite: bool, interruption: Interruption) -> None:
    """Save the result; a signal ends the process and leaves nothing behind.

    Only the renaming itself is not to be interrupted: from then on the result is there.
    """
    from streameval.result.saved import ResultFolder

    folder = ResultFolder(out, overwrite=overwrite)
    with interruption.discarding(folder.discard), folder:
        result.write(folder.partial)
        with interruption.held():
            folder.put_in_place()

"""Where answers go: stdout, files, the folder of a result.

Finished work is kept beside the folder until the result is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from streameval.cli.options import Values
from streameval.errors import OptionError, OutputError, StreamevalError
from streameval.interruption import at_end
from streameval.output import ESCAPED, as_json, check_new, write_new

if TYPE_CHECKING:
    from streameval.display.table import Blocks, Table
    from streameval.result import Evaluation
    from streameval.result.average import Average
    from streameval.result.several import Evaluations
    from streameval.run.checkpoint import Checkpoint
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

    Result = Evaluation | Average | Evaluations


SUFFIX = ".progress"
IDENTITY, FINGERPRINTS = "evaluation", "fingerprints"  # in the provenance of a result


def print_out(text: str) -> None:
    """Print on stdout."""
    try:
        click.echo(text.encode(errors=ESCAPED).decode(), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"stdout can't be written to: {error.strerror or error}") from error


def chosen_format(values: Values) -> str:
    """Return the format of ``--format`` and ``--json``; what is no text has to go to a file."""
    name = str(values.get("format", "table"))
    if name == "parquet" and values.get("text_file") is None:
        raise OptionError(
            "--format parquet is no text to be printed: give a file, as streameval show DIR "
            "--format parquet --out rows.parquet"
        )
    if values["json"] and name not in ("table", "json"):
        raise OptionError(f"got --json and --format {name}: choose one of them")
    return "json" if values["json"] else name


def print_answer(
    values: Values,
    summary: Callable[[], object],
    blocks: Callable[[], Blocks],
    table: Callable[[], Table] | None = None,
) -> None:
    """Print or write an answer as ``--format``, ``--json`` and ``--out`` say.

    It is a summary, what people read, or a table for programs; only what is asked for is made.
    """
    from streameval.display.table import FORMATS
    from streameval.display.text import is_plain, render

    form = chosen_format(values)
    if form == "json":
        print_or_write(as_json(summary()), values)
    elif table is not None and form in FORMATS:
        print_or_write(FORMATS[form](table()), values)
    else:
        plain = values.get("text_file") is not None or is_plain()
        print_or_write(render(blocks(), plain=plain), values)


def print_lines(values: Values, summary: object, *lines: str) -> None:
    """Print a summary as JSON where ``--json`` is given, else lines, with paths as they are."""
    from streameval.display.text import shown

    text = "".join(f"{shown(line)}\n" for line in lines)
    print_out(as_json(summary) if values["json"] else text)


def print_or_write(content: str | bytes, values: Values) -> None:
    """Print on stdout, or write to the file that is named in its place."""
    if values.get("text_file") is not None:
        write_new(values["text_file"], content, overwrite=values["overwrite"])
    else:
        print_out(content if isinstance(content, str) else content.decode())


class Output(ExitStack):
    """The folder of ``--out``, with finished work in ``DIR.progress``: a context.

    Without ``--out`` no work is kept.

    Parameters
    ----------
    values : mapping of str to object
        Of the command: ``out``, ``overwrite``, ``resume``, ``save_index``.
    """

    def __init__(self, values: Values) -> None:
        super().__init__()
        self._out, self._overwrite = values["out"], values["overwrite"]
        self._resume = values["resume"]
        self._checkpoint: Checkpoint | None = None
        self._saved: Evaluation | None = None
        if values["save_index"] is not None:
            check_new(values["save_index"], overwrite=self._overwrite or self._resume)
        if self._out is None and self._resume:
            raise OptionError("--resume goes on with the work kept for --out: give --out DIR")

    def __enter__(self) -> Self:
        from streameval.result.saved import ResultFolder
        from streameval.run.checkpoint import Checkpoint, discard

        if self._out is None:
            return self
        with ExitStack() as opened:
            new = ResultFolder(self._out, overwrite=self._overwrite or self._resume)
            self._folder = opened.enter_context(new)
            work = Path(f"{new.target}{SUFFIX}")
            if self._overwrite and not self._resume:
                discard(work)
            self._checkpoint = opened.enter_context(Checkpoint(work, resume=self._resume))
            opened.enter_context(at_end(self._remains))
            self.push(opened.pop_all())
        return self

    def count(self, prepared: list[Prepared], session: Session) -> list[Evaluation]:
        """Return the results: evaluated, or read again where the same evaluation is saved."""
        from streameval.result.saved import least_bytes
        from streameval.run.orchestrator import carry_out_all
        from streameval.run.provenance import identity, manifest

        if self._out is None:
            return carry_out_all(prepared, session)
        content = manifest(prepared)
        name = identity(content)
        if self._resume and Path(self._out).exists():
            known = self._known(prepared, name)
            if known:
                return known
            if not self._overwrite:
                raise OutputError(
                    f"{self._out} holds the result of another evaluation, of other inputs or "
                    "options; choose another folder, or replace it: --overwrite"
                )
        problem, plan = prepared[0].problem, prepared[0].plan
        listed = plan.layout == "lists"
        queries = max(problem.queries, problem.shared.asking)
        self._folder.reserve(least_bytes(queries, 0 if listed else problem.pairs.positives))
        if self._checkpoint is not None:
            plan = self._checkpoint.start(lambda: content, plan, prepared[0].with_cut)
            prepared = [replace(one, plan=plan) for one in prepared]
            session = replace(session, record=self._checkpoint, scratch=self._folder.target)
        about = {IDENTITY: name, FINGERPRINTS: content["inputs"]}
        return [
            replace(result, provenance={**result.provenance, **about})
            for result in carry_out_all(prepared, session)
        ]

    def _known(self, prepared: list[Prepared], name: str) -> list[Evaluation]:
        """Return what is saved, under the options that are asked for; none of another evaluation.

        Of several evaluations, all are saved together.
        """
        from streameval.result import Evaluation
        from streameval.result.several import folders_of

        known = []
        for one, folder in zip(prepared, folders_of([one.place for one in prepared]), strict=True):
            if not Path(self._out, folder).exists():
                return []
            saved, request = Evaluation.load(Path(self._out, folder)), one.request
            if saved.provenance.get(IDENTITY) != name:
                return []
            result = saved.with_options(request.options)
            by = request.group_by
            known.append(result if by is None else result.grouped(by))
            self._saved = self._saved or saved
        return known

    def holds(self, results: list[Evaluation]) -> bool:
        """Return whether what is saved has the same options, groups and intervals."""
        import numpy as np

        saved, result = self._saved, results[0]
        by = str(result.group_by)  # of no column: without groups, or cam-pair
        return (
            saved is not None
            and saved.options == result.options
            and saved.group_by == result.group_by
            and saved.resampling == result.resampling
            and np.array_equal(saved.columns.get(by, ()), result.columns.get(by, ()))
        )

    def save(self, result: Result, results: list[Evaluation]) -> Exception | None:
        """Save the result where it is not there; return the error where it can't be written.

        It is of these evaluations.

        It may be the work of hours, and is printed all the same; finished work is kept then.
        """
        from streameval.result.saved import check_output

        if self._out is None:
            return None
        replaces = self._overwrite or self._saved is not None
        try:
            if not self.holds(results):
                check_output(self._out, overwrite=replaces)
                self._folder.fill(result.write)
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

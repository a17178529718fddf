"""The options ``--trec-run`` and ``--trec-qrels``: lists of neighbours for other evaluators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from streameval.cli.inputs import has_lists
from streameval.cli.options import FILE, Values, together
from streameval.cli.signals import Interruption
from streameval.errors import OptionError
from streameval.output import NewFile

if TYPE_CHECKING:
    from streameval.neighbors.lists import Lists
    from streameval.neighbors.trec import Names
    from streameval.protocols.labels import Labels
    from streameval.protocols.pairs import Pairs

trec_options = together(
    click.option("--trec-run", type=FILE, help="Write the lists to this new file, a TREC run."),
    click.option("--trec-qrels", type=FILE, help="And all positives, a TREC qrels file."),
)


class TrecFiles:
    """TREC files being written.

    Parameters
    ----------
    run, qrels : NewFile or None
    ties : str
        Which of items at the same distance is first.
    """

    def __init__(self, run: NewFile | None, qrels: NewFile | None, ties: str) -> None:
        self._run, self._qrels, self._ties = run, qrels, ties
        self._names: tuple[Names, Names] = (), ()
        self._pairs: Pairs | None = None
        self._done = 0

    def start(self, query: Labels, gallery: Labels, pairs: Pairs) -> None:
        """Take the names of both sides, and write the positives.

        Raises
        ------
        InputError
            If a name can't be in a file.
        """
        from streameval.neighbors.trec import names_of, qrels_lines

        self._names = names_of(query, "query"), names_of(gallery, "gallery")
        self._pairs = pairs
        if self._qrels is not None:
            self._qrels.write_all(qrels_lines(pairs, *self._names))

    def collect(self, returned: Lists) -> None:
        """Write the lists of the next queries."""
        from streameval.neighbors.trec import run_lines

        if self._pairs is None:
            raise TypeError("the pairs are not known yet")
        first, last = self._done, self._done + len(returned.indptr) - 1
        self._done = last
        if self._run is not None:
            pairs, (queries, gallery) = self._pairs.block(first, last), self._names
            lines = run_lines(returned, pairs, self._ties, queries[first:last], gallery)
            self._run.write_all(lines)

    def discard(self) -> None:
        """Remove what is unfinished."""
        for file in (self._run, self._qrels):
            if file is not None:
                file.discard()


@contextmanager
def open_trec(values: Values, ties: str, interruption: Interruption) -> Iterator[TrecFiles | None]:
    """Open the files that the options name; they are there when all is done, and not before.

    Raises
    ------
    OptionError
        If there are no lists to be written, or no one order of them.
    OutputError
        If a file can't be written.
    """
    paths = {name: values[name] for name in ("trec_run", "trec_qrels")}
    options = [f"--{name.replace('_', '-')}" for name, path in paths.items() if path is not None]
    if not options or values["dry_run"]:
        yield None
        return
    from streameval.neighbors.trec import check_ties

    check_ties(ties)
    if not has_lists(values):
        raise OptionError(
            f"{options[0]} writes lists of neighbours: give --neighbors URI, or features with "
            "--index Flat -k K (of all, K the size of the gallery)"
        )
    for option, why in (
        ("-k auto", values["k"] == "auto" and "of which there are several lengths"),
        ("--resume", values["resume"] and "which keeps no lists"),
    ):
        if why:
            raise OptionError(f"got {options[0]} and {option}, {why}: leave one of them out")
    with ExitStack() as stack:
        run, qrels = (
            None
            if path is None
            else stack.enter_context(NewFile(path, overwrite=values["overwrite"]))
            for path in paths.values()
        )
        yield TrecFiles(run, qrels, ties)

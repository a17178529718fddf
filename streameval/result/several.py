"""The results of one pass, by protocol: one evaluation each, or the average of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.display.shown import Shown, blocks_of
from streameval.errors import OutputError, check_path, entry_points
from streameval.protocols.protocol import Protocol
from streameval.result.average import Average, average
from streameval.result.evaluation import Evaluation, Results
from streameval.result.saved import Saves, run_folders, saved_runs, write_together
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.display.table import Blocks, Table

Result = Evaluation | Average


@entry_points
@dataclass(frozen=True, eq=False, repr=False)
class Evaluations(Shown, Saves, Mapping[str, Result]):
    """The results of several protocols: a mapping from their names.

    `save` writes ``summary.json``, and each result in a folder of the protocol's name.

    Attributes
    ----------
    results : mapping of str to Evaluation or Average
        An `Average` for protocols that draw trials or have several galleries.
    """

    results: Mapping[str, Result]

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        return f"<Evaluations of {', '.join(self)}>"

    def _blocks(self, saved: str | None = None) -> Blocks:
        blocks: Blocks = []
        folders = run_folders(self)
        for name, one in self.items():
            place = None if saved is None else str(Path(saved) / folders[name])
            blocks += ["", *blocks_of(one, place)]
        return blocks[1:]

    def _table(self, name: str) -> Table:
        from streameval.display.evaluation import results_table

        return results_table(self.runs)

    @property
    def runs(self) -> Results:
        """All evaluations by name: of the run of an average, the protocol's and its own."""
        runs: dict[str, Evaluation] = {}
        for name, one in self.items():
            if isinstance(one, Average):
                runs |= {f"{name}, {run}": own for run, own in one.runs.items()}
            else:
                runs[name] = one
        return runs

    def summary(self) -> JsonObject:
        """Return the content of ``summary.json``: the summary of each protocol."""
        return {"protocols": {name: one.summary() for name, one in self.items()}}

    @classmethod
    def load(cls, path: str | Path) -> Evaluations:
        """Load saved results.

        Raises
        ------
        OutputError
            If the folder is not what `save` wrote, or a result in it can't be loaded.
        """
        check_path(path)
        names = saved_runs(Path(path), "protocols")
        if not names:
            raise OutputError(f"{path} is no results of protocols; expected what save wrote")
        return cls({name: loaded(Path(path, place)) for name, place in run_folders(names).items()})

    def write(self, folder: Path) -> None:
        """Write the files of the results into an existing folder."""
        write_together(self.results, self.summary(), folder)


def loaded(path: Path) -> Result:
    """Return what is saved: one evaluation, or the average of several."""
    return Average.load(path) if saved_runs(path, "runs") else Evaluation.load(path)


def load_together(path: Path) -> Average | Evaluations:
    """Return evaluations that were saved together: of the protocols, or of one's runs."""
    return Average.load(path) if saved_runs(path, "runs") else Evaluations.load(path)


Place = tuple[Protocol, str]
"""What an evaluation is of: its protocol, and the name of the view."""


def gathered(places: Sequence[Place], results: Sequence[Evaluation]) -> Evaluations:
    """Return evaluations by their protocols."""
    views: dict[str, dict[str, Evaluation]] = {}
    for (protocol, view), result in zip(places, results, strict=True):
        views.setdefault(protocol.name, {})[view] = result
    several = {protocol.name: protocol.several for protocol, _ in places}
    return Evaluations(
        {
            name: average(runs) if several[name] else next(iter(runs.values()))
            for name, runs in views.items()
        }
    )


def folders_of(places: Sequence[Place]) -> list[Path]:
    """Return where the result of each evaluation is, in the folder that all are saved to."""
    protocols = list(dict.fromkeys(protocol.name for protocol, _ in places))
    above = run_folders(protocols) if len(protocols) > 1 else dict.fromkeys(protocols, "")
    return [
        Path(above[protocol.name], run_folders([view])[view] if protocol.several else "")
        for protocol, view in places
    ]

"""CSV tables of labels: what is an integer, what is text, what is neither; both sides alike."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from test_cli import ARRAYS, CSV, STORED, data, run

import streameval as se
from streameval import InputError, read_label_table, read_label_tables

__all__ = ["data"]


def write(path: Path, *rows: str, header: str = "id") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def refused(message: pytest.ExceptionInfo[InputError], *words: str) -> None:
    assert "\n" not in str(message.value)
    for word in words:
        assert word in str(message.value)


def test_arrow_takes_no_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes those of the main thread while it reads, and may lose one."""
    read, threads = pyarrow.csv.read_csv, []

    def noted(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return read(*given, **named)

    monkeypatch.setattr("pyarrow.csv.read_csv", noted)
    read_label_table(write(tmp_path / "a.csv", "1", "2"))
    with pytest.raises(InputError, match="row 1"):
        read_label_table(write(tmp_path / "b.csv", "1", "2,3"))
    assert len(threads) == 3
    assert threading.main_thread() not in threads


def test_columns_that_are_told_to_be_text(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "0001,01,7", "1,1,8", header="id,cam,key")
    labels = read_label_table(table, text=("id", "cam"))
    assert labels.id.tolist() == ["0001", "1"]
    assert labels.cam is not None
    assert labels.cam.tolist() == ["01", "1"]
    assert labels.key is not None
    assert labels.key.tolist() == [7, 8]
    ids = write(tmp_path / "ids.csv", "0001", "1", header="id")
    assert read_label_table(ids, text="id").id.tolist() == ["0001", "1"]


@pytest.mark.parametrize(
    ("query", "gallery", "expected"),
    [
        (["0001", "2"], ["0002x", "0001"], (["0001", "2"], ["0002x", "0001"])),
        (["a", "2"], ["1", "2"], (["a", "2"], ["1", "2"])),
        (["0002", "-1"], ["0002", "0010"], ([2, -1], [2, 10])),
        (["1"], ["99999999999999999999"], (["1"], ["99999999999999999999"])),
        (["1"], [], ([1], [])),
    ],
)
def test_integers_only_where_both_sides_are(
    tmp_path: Path, query: list[str], gallery: list[str], expected: tuple[list[object], ...]
) -> None:
    both = read_label_tables(write(tmp_path / "q.csv", *query), write(tmp_path / "g.csv", *gallery))
    assert tuple(side.id.tolist() for side in both) == expected


def test_columns_are_judged_one_by_one(tmp_path: Path) -> None:
    query, gallery = read_label_tables(
        write(tmp_path / "q.csv", "1,c1", "2,2", header="id,cam"),
        write(tmp_path / "g.csv", "3,4,5", header="id,cam,key"),
    )
    assert [query.id.tolist(), gallery.id.tolist()] == [[1, 2], [3]]
    assert query.cam is not None
    assert gallery.cam is not None
    assert [query.cam.tolist(), gallery.cam.tolist()] == [["c1", "2"], ["4"]]
    assert gallery.key is not None
    assert gallery.key.tolist() == [5]


def test_a_parquet_side_decides(tmp_path: Path) -> None:
    table = write(tmp_path / "q.csv", "0001", "1")
    pq.write_table(pa.table({"id": ["0001"]}), tmp_path / "g.parquet")
    assert read_label_tables(table, tmp_path / "g.parquet")[0].id.tolist() == ["0001", "1"]
    pq.write_table(pa.table({"id": [1]}), tmp_path / "g.parquet")
    table = write(tmp_path / "q.csv", "0001", "0002")
    assert read_label_tables(table, tmp_path / "g.parquet")[0].id.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["5", "01", "7", "1"], ["01 in row 1", "1 in row 3"]),
        (["+1", "1"], ["+1 in row 0", "1 in row 1"]),
        (["0", "00"], ["0 in row 0", "00 in row 1"]),
        (["-0", "0"], ["-0 in row 0", "0 in row 1"]),
        (["-1", "-01"], ["-1 in row 0", "-01 in row 1"]),
    ],
)
def test_two_texts_of_one_integer(tmp_path: Path, rows: list[str], words: list[str]) -> None:
    table = write(tmp_path / "a.csv", *rows)
    with pytest.raises(InputError) as caught:
        read_label_table(table)
    refused(caught, "column id", str(table), *words)
    half = len(rows) // 2
    sides = write(tmp_path / "q.csv", *rows[:half]), write(tmp_path / "g.csv", *rows[half:])
    with pytest.raises(InputError) as caught:
        read_label_tables(*sides)
    refused(caught, "column id", *map(str, sides))


def test_leading_zeros_alone_are_fine(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "0002", "0002", "-1", "0000", "+7", "+7", "1500")
    assert read_label_table(table).id.tolist() == [2, 2, -1, 0, 7, 7, 1500]


@pytest.mark.parametrize("empty", ["nan", "NaN", "NA", "null", "None", " NA ", ""])
@pytest.mark.parametrize("other", ["3", "p3"])
def test_cells_that_stand_for_nothing(tmp_path: Path, empty: str, other: str) -> None:
    table = write(tmp_path / "a.csv", f"{other},1", f"{empty},2", header="id,cam")
    with pytest.raises(InputError) as caught:
        read_label_table(table, text=("id",))
    refused(caught, "column id is empty in 1 rows, first in row 1", empty.strip())


def test_integers_and_texts_are_refused_with_the_remedy(tmp_path: Path) -> None:
    for name, column in (("q", [1, 2]), ("g", ["1", "2"])):
        pq.write_table(pa.table({"id": column}), tmp_path / f"{name}.parquet")
    query, gallery = read_label_tables(tmp_path / "q.parquet", tmp_path / "g.parquet")
    source = se.Distances(np.ones((2, 2)))
    for sides, kinds, side in (
        ((query, gallery), "integers and strings", "query"),
        ((gallery, query), "strings and integers", "gallery"),
    ):
        with pytest.raises(InputError) as caught:
            se.evaluate(source, query=sides[0], gallery=sides[1])
        refused(
            caught,
            f"ids of {sides[0].source}, {sides[1].source} are {kinds}, and none would match",
            f"those of the {side} as strings, too (NumPy: labels.astype(str); a table: a column of",
        )


@pytest.mark.parametrize("empty", ["nan", "NaN", "NA", "null", "None", " NA ", "", None])
@pytest.mark.parametrize("kind", ["string", "large_string", "categories"])
def test_texts_of_parquet_that_stand_for_nothing(
    tmp_path: Path, empty: str | None, kind: str
) -> None:
    column = pa.array(["nancy", empty, "p3"], "string" if kind == "categories" else kind)
    column = column.dictionary_encode() if kind == "categories" else column
    pq.write_table(pa.table({"id": column}), tmp_path / "a.parquet")
    with pytest.raises(InputError) as caught:
        read_label_table(tmp_path / "a.parquet")
    refused(caught, "column id is empty in 1 rows, first in row 1", (empty or "").strip())


def test_words_that_begin_like_nothing(tmp_path: Path) -> None:
    rows = ["nancy", "NASA", "nullable"]
    assert read_label_table(write(tmp_path / "a.csv", *rows)).id.tolist() == rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["1,2", "3", "4,5"], ["row 1", "1 of 2 cells"]),
        (["1,2", "3,4,5"], ["row 1", "3 of 2 cells"]),
        (['1,"2', *["3,4"] * 30], ["row 0", "several lines", "quotation mark"]),
        (['"1,2', *["3,4"] * 30], ["row 0", "1 of 2 cells", "quotation mark"]),
    ],
)
def test_rows_that_are_broken(tmp_path: Path, rows: list[str], words: list[str]) -> None:
    table = write(tmp_path / "a.csv", *rows, header="id,cam")
    with pytest.raises(InputError) as caught:
        read_label_table(table)
    refused(caught, str(table), *words)


def test_a_header_that_is_no_header(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_label_table(write(tmp_path / "a.csv", *["x"] * 500, header='"name'))
    refused(caught, "no column id")
    assert len(str(caught.value)) < 600


@pytest.mark.usefixtures("data")
def test_sides_of_every_form_are_compared() -> None:
    rows = Path("gallery.csv").read_text().splitlines()
    rows[1] = f"0002x{rows[1][rows[1].index(',') :]}"
    Path("text.csv").write_text("\n".join(rows) + "\n")
    ids = np.array([row.partition(",")[0] for row in rows[1:]])
    np.save("text.npy", ids)
    alike = [
        (*CSV[:2], "--gallery-labels", "text.csv"),
        (*CSV[:2], "--gallery-ids", "text.npy", *ARRAYS[6:]),
    ]
    done = [run(*STORED, *labels, "--protocol", "no-camera", "--json") for labels in alike]
    assert [one.exit_code for one in done] == [0, 0], done[0].stderr + done[1].stderr
    metrics = [one.stdout.partition('"counts"')[0] for one in done]
    assert metrics[0] == metrics[1]

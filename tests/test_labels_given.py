"""Labels as mappings and tables of any package are those of `Labels`, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import streameval as se

pd, pl, xr = (pytest.importorskip(name) for name in ("pandas", "polars", "xarray"))

Columns = Mapping[str, np.ndarray]
RNG = np.random.default_rng(0)
SOURCE = se.Features(RNG.standard_normal((20, 8)), RNG.standard_normal((200, 8)))


def columns(count: int) -> Columns:
    """Return columns of labels, and one of numbers that are none."""
    return {
        "id": RNG.integers(0, 8, count),
        "cam": RNG.integers(0, 3, count),
        "weather": RNG.choice(["wet", "dry"], count),
        "score": RNG.random(count),
    }


SIDES = {"query": columns(20), "gallery": columns(200)}


def labels_alone(given: Columns) -> dict[str, np.ndarray]:
    return {name: values for name, values in given.items() if name != "score"}


FORMS: Mapping[str, Callable[[Columns], Any]] = {
    "mapping": labels_alone,
    "lists": lambda given: {name: own.tolist() for name, own in labels_alone(given).items()},
    "dataset of xarray": lambda given: xr.Dataset(
        {name: ("row", own) for name, own in labels_alone(given).items()}
    ),
    "pandas": pd.DataFrame,
    "pandas, categories": lambda given: pd.DataFrame(given).astype({"weather": "category"}),
    "pandas, nullable": lambda given: pd.DataFrame({**given, "id": pd.array(given["id"], "Int64")}),
    "pandas, index": lambda given: pd.DataFrame(given).set_index("id"),
    "polars": pl.DataFrame,
    "polars, categories": lambda given: pl.DataFrame(given).with_columns(
        pl.col("weather").cast(pl.Categorical)
    ),
    "PyArrow": lambda given: pa.table(dict(given)),
    "PyArrow, batches": lambda given: pa.table(dict(given)).to_reader(5),
}


@pytest.fixture(scope="module")
def expected() -> se.Evaluation:
    sides = {side: se.Labels.of(labels_alone(own)) for side, own in SIDES.items()}
    return se.evaluate(SOURCE, **sides, group_by="weather")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_labels(form: str, expected: se.Evaluation) -> None:
    sides = {side: FORMS[form](own) for side, own in SIDES.items()}
    found = se.evaluate(SOURCE, **sides, group_by="weather")
    assert found.statistics.equals(expected.statistics)
    np.testing.assert_equal(dict(found.metrics), dict(expected.metrics))
    assert {name: own.tolist() for name, own in found.columns.items()} == {
        name: own.tolist() for name, own in expected.columns.items()
    }
    assert found.groups.keys() == expected.groups.keys() == {"wet", "dry"}


def test_columns_of_a_table_that_are_no_labels_are_left_out(expected: se.Evaluation) -> None:
    more = {"score": 0.5, "group": 3, "note": None, "when": "NA"}
    sides = {
        side: pl.DataFrame(labels_alone(own)).with_columns(
            **{name: pl.lit(value) for name, value in more.items()}
        )
        for side, own in SIDES.items()
    }
    found = se.evaluate(SOURCE, **sides)
    assert found.statistics.equals(expected.statistics)
    assert set(found.columns) == {"id", "cam", "weather"}
    with pytest.raises(se.InputError, match="note"):
        se.evaluate(SOURCE, **sides, group_by="note")


def test_objects_of_pandas_have_to_be_left_out() -> None:
    frame = pd.DataFrame({"id": [1, 2], "thing": [object(), 3]})
    with pytest.raises(se.InputError, match=r'leave columns of objects out, as by table\[\["id"'):
        se.evaluate(SOURCE, query=frame, gallery=SIDES["gallery"])


REFUSED: Mapping[str, tuple[Any, str]] = {
    "no id": (pd.DataFrame({"x": [1]}), "id"),
    "null": (pl.DataFrame({"id": [1, None]}), "row 1"),
    "fraction": (pd.DataFrame({"id": [1.5]}), "id"),
    "a series": (pl.Series("id", [1]), "query"),
    "both kinds": (pd.DataFrame({"id": [1, "a"]}), "id"),
    "nested": (pa.table({"id": [[1]]}), "id"),
    "misspelt": ({"ids": [1]}, "id"),
    "names that are none": ({1: [1]}, "mapping"),
    "a list": ([1, 2], "type list"),
    "nothing": (None, "NoneType"),
    "a name twice": (pa.table([[1], [2]], names=["id", "id"]), "id"),
    "an empty text": (pl.DataFrame({"id": ["a", ""]}), "row 1"),
    "lengths": ({"id": [1, 2], "cam": [1]}, "cam"),
    "a path": ("labels.csv", "type str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_refused_in_one_line(name: str) -> None:
    given, words = REFUSED[name]
    with pytest.raises(se.InputError) as refused:
        se.evaluate(SOURCE, query=given, gallery=SIDES["gallery"])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def write_csv(texts: list[str]) -> se.Labels:
    Path("a.csv").write_text("\n".join(["id", *texts]) + "\n")
    return se.read_label_table("a.csv")


def write_parquet(texts: list[str]) -> se.Labels:
    pq.write_table(pa.table({"id": texts}), "a.parquet")
    return se.read_label_table("a.parquet")


def write_parquet_array(texts: list[str]) -> se.Labels:
    pq.write_table(pa.table({"id": texts}), "a.parquet")
    return se.read_labels("a.parquet::id")


def write_zarr(texts: list[str]) -> se.Labels:
    zarr.create_array("a.zarr", data=np.array(texts, np.dtypes.StringDType()), overwrite=True)
    return se.read_labels("a.zarr")


def write_names(texts: list[str]) -> se.Labels:
    Path("a.txt").write_text("".join(f"000{at}_c1s1.jpg{text}\n" for at, text in enumerate(texts)))
    return se.read_label_table("a.txt")


WAYS: Mapping[str, Callable[[list[str]], Any]] = {
    "a list": se.Labels,
    "bytes": lambda texts: se.Labels([text.encode() for text in texts]),
    "objects": lambda texts: se.Labels(np.array(texts, object)),
    "texts of any length": lambda texts: se.Labels(np.array(texts, np.dtypes.StringDType())),
    "cameras": lambda texts: se.Labels(range(len(texts)), texts),
    "a further column": lambda texts: se.Labels(range(len(texts)), more={"weather": texts}),
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".parquet::id": write_parquet_array,
    ".zarr": write_zarr,
    "file names": write_names,
    "junk": lambda texts: se.Protocol("mine", ignore=[], junk_ids=texts),
    **{
        f"a table of {name}": lambda texts, made=made: evaluated(made({"id": texts}))
        for name, made in {
            "pandas": pd.DataFrame,
            "polars": pl.DataFrame,
            "pyarrow": pa.table,
        }.items()
    },
    "a table of categories": lambda texts: evaluated(pd.DataFrame({"id": pd.Categorical(texts)})),
    "a mapping": lambda texts: evaluated({"id": texts}),
    "groups": lambda texts: evaluated({"id": ["3", "4"]}, group_by=texts),
}


def evaluated(query: Any, **options: Any) -> se.Evaluation:
    source = se.Distances(np.array([[0.1, 0.2], [0.3, 0.4]]))
    return se.evaluate(
        source, query=query, gallery={"id": ["3", "4"]}, protocol="no-camera", **options
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["3\0", "\0", "3\x004"])
def test_a_label_with_a_nul_is_refused(
    way: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    WAYS[way](["3", "4"] if way != "file names" else ["", ""])
    with pytest.raises(se.StreamevalError, match="NUL character"):
        WAYS[way]([text, "4"] if way != "file names" else [text, ""])

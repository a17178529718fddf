"""Groups by further columns of the queries' table of labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli import CSV, QUERIES, STORED, data, run
from test_cli_metrics import refused

import streameval as se

__all__ = ["data"]

ARRAY_GALLERY = ("--gallery-ids", "gallery_id.npy", "--gallery-cams", "gallery_cam.npy")
WEATHER = ["rain", "sun", "rain", "fog", "sun", "sun", "rain", "sun", "sun", "fog"]


@pytest.fixture
def tables(data: Path) -> list[str]:
    """Write tables of the queries with two further columns; return their names."""
    rows = Path("query.csv").read_text().splitlines()
    lines = [f"{rows[0]}, time-of-day,weather,box"]
    for at, row in enumerate(rows[1:]):
        lines.append(f"{row},{at // 5},{WEATHER[at]},{'' if at else '0.5'}")
    Path("more.csv").write_text("\n".join(lines) + "\n")
    table = pq.read_table("query.parquet")
    table = table.append_column("weather", pa.array(WEATHER).dictionary_encode())
    pq.write_table(table.append_column("time-of-day", [np.arange(10) // 5]), "more.parquet")
    return ["more.csv", "more.parquet"]


def groups(*arguments: str) -> dict[str, object]:
    done = run(*STORED, *arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, object] = json.loads(done.stdout)["groups"]
    return found


def test_by_any_column_of_the_table(tables: list[str]) -> None:
    for column, values in (("weather", np.array(WEATHER)), ("time-of-day", np.arange(10) // 5)):
        np.save("labels.npy", values)
        expected = groups(*CSV, "--group-by", "labels.npy")["values"]
        for table in tables:
            for gallery in (CSV[2:], ARRAY_GALLERY):
                found = groups("--query-labels", table, *gallery, "--group-by", column)
                assert found == {"by": column, "values": expected}


@pytest.mark.parametrize("name", ["site/zone", "zone v1.0", "Zoné (%)"])
def test_a_column_of_any_name(tables: list[str], name: str, tmp_path: Path) -> None:
    expected = groups("--query-labels", tables[0], *CSV[2:], "--group-by", "weather")["values"]
    for table in tables:
        if table.endswith(".csv"):
            Path(table).write_text(Path(table).read_text().replace("weather", name, 1))
        else:
            read = pq.read_table(table)
            pq.write_table(read.rename_columns({"weather": name}), table)
        more = ("--query-labels", table, *CSV[2:])
        out = tmp_path / f"out-{table}"
        found = groups(*more, "--group-by", name, "--out", str(out))
        assert found == {"by": name, "values": expected}
        loaded = se.Evaluation.load(out)
        assert (loaded.group_by, loaded.columns[name].tolist()) == (name, WEATHER)
        (tmp_path / "conf").mkdir(exist_ok=True)
        config = tmp_path / "conf" / "config.toml"
        config.write_text(f"group-by = {json.dumps(name, ensure_ascii=False)}\n")
        assert groups(*more, "--config", str(config)) == found
    with Path("labels.npy").open("wb") as file:
        np.save(file, np.array(WEATHER))
    (tmp_path / "conf/config.toml").write_text(f'group-by = "{Path.cwd()}/labels.npy"\n')
    assert groups(*CSV, "--config", str(tmp_path / "conf/config.toml"))["values"] == expected


def test_a_saved_result_keeps_the_column(tables: list[str]) -> None:
    more = ("--query-labels", tables[0], *CSV[2:], "--group-by", "weather", "--out", "out")
    printed = groups(*more)
    loaded = se.Evaluation.load("out")
    assert loaded.group_by == "weather"
    assert loaded.columns["weather"].tolist() == WEATHER
    assert json.loads(json.dumps(loaded.summary()))["groups"] == printed
    assert loaded.per_query["label:weather"].tolist() == WEATHER
    assert loaded.grouped("cam").grouped("weather").groups.keys() == {"fog", "rain", "sun"}


def test_labels_in_memory_may_have_the_name_of_a_computed_column(tmp_path: Path) -> None:
    sides = {"query": se.Labels([1, 2], more={"AP": ["a", "b"]}), "gallery": se.Labels([1, 2])}
    source = se.Distances(np.array([[0.1, 0.2], [0.3, 0.4]]))
    result = se.evaluate(source, **sides, protocol="no-camera", group_by="AP")
    assert result.per_query["AP"].tolist() == [1.0, 0.5]
    result.save(tmp_path / "out")
    loaded = se.Evaluation.load(tmp_path / "out")
    assert loaded.groups.keys() == {"a", "b"}
    assert loaded.groups["b"].scalars["mAP"] == 0.5


@pytest.mark.usefixtures("data")
def test_columns_that_cannot_be(tables: list[str]) -> None:
    for table in tables:
        labels = ("--query-labels", table, *CSV[2:])
        refused(run(*STORED, *labels, "--group-by", "wether"), f"{table} has no column wether")
    labels = ("--query-labels", "more.csv", *CSV[2:])
    refused(
        run(*STORED, *labels, "--group-by", "box"),
        "9 queries have no box to group by, the first of them query 1",
    )
    with pytest.raises(se.InputError, match=f"{QUERIES} ids, and 2 entries of weather"):
        se.Labels(np.arange(QUERIES), more={"weather": np.array([1, 2])})
    with pytest.raises(se.InputError, match="has cam among its further columns"):
        se.Labels(np.arange(2), more={"cam": np.array([1, 2])})

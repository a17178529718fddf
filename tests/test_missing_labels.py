"""A missing label equals nothing, in whatever form it is given; and floats are for tests alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.protocols import find_pairs
from test_cli import STORED, data, run
from test_cli_metrics import refused

import streameval as se

pd, pl = (pytest.importorskip(name) for name in ("pandas", "polars"))

__all__ = ["data"]

COLUMNS: Mapping[str, list[Any]] = {
    "id": [1, 1, 2, 2, 3],
    "cam": [1, None, 2, 1, None],
    "clothes": ["coat", None, "suit", "coat", None],
    "score": [0.5, None, 1.0, 0.25, 2.0],
}
RULES = ("same(id, cam)", "same(clothes)", "not gallery.score >= 0.5")


def columns_of(labels: se.Labels) -> dict[str, list[Any]]:
    return {
        name: [None if one == "" or one != one else one for one in values.tolist()]
        for name, values in labels.columns.items()
    }


def write_csv(folder: Path) -> se.Labels:
    rows = zip(*COLUMNS.values(), strict=True)
    lines = [",".join("" if one is None else f" {one} " for one in row) for row in rows]
    (folder / "t.csv").write_text("\n".join([",".join(COLUMNS), *lines]))
    return se.read_label_table(folder / "t.csv", more=["clothes", "score"])


def write_parquet(folder: Path, **changes: Any) -> se.Labels:
    pq.write_table(pa.table({**COLUMNS, **changes}), folder / "t.parquet")
    return se.read_label_table(folder / "t.parquet", more=["clothes", "score"])


FORMS: Mapping[str, Callable[[Path], Any]] = {
    "lists": lambda _: COLUMNS,
    "labels": lambda _: se.Labels.of(COLUMNS),
    "arrays": lambda _: {
        **COLUMNS,
        "cam": np.array([1, np.nan, 2, 1, np.nan], np.float32),
        "clothes": np.array(["coat", "", "suit", "coat", ""]),
        "score": np.array(COLUMNS["score"], float),
    },
    "objects": lambda _: {name: np.array(own, object) for name, own in COLUMNS.items()},
    "texts of NumPy": lambda _: {
        **COLUMNS,
        "clothes": np.array(COLUMNS["clothes"], np.dtypes.StringDType(na_object=None)),
    },
    "CSV": write_csv,
    "Parquet": write_parquet,
    "Parquet, categories": lambda folder: write_parquet(
        folder, clothes=pa.array(COLUMNS["clothes"]).dictionary_encode()
    ),
    "Parquet, empty texts": lambda folder: write_parquet(
        folder, clothes=["coat", " ", "suit", "coat", ""]
    ),
    "pandas": lambda _: pd.DataFrame(COLUMNS),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "PyArrow": lambda _: pa.table(dict(COLUMNS)),
    "joined": lambda _: se.Labels.join(
        [se.Labels.of(COLUMNS).take(slice(*part)) for part in ((0, 2), (2, 5))], "parts"
    ),
    "pickled": lambda _: pickle.loads(pickle.dumps(se.Labels.of(COLUMNS))),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_pairs(form: str, tmp_path: Path) -> None:
    given = FORMS[form](tmp_path)
    if isinstance(given, se.Labels):
        assert columns_of(given) == COLUMNS
    protocol = se.Protocol("mine", RULES)
    positive = np.zeros((5, 5), bool)
    ignored = np.array([[score is None or score < 0.5 for score in COLUMNS["score"]]] * 5)
    for q in range(5):
        for g in range(5):
            same = {name: own[q] == own[g] is not None for name, own in COLUMNS.items()}
            ignored[q, g] |= (same["id"] and same["cam"]) or same["clothes"]
            positive[q, g] = same["id"] and not ignored[q, g]
    result = se.evaluate(
        se.Distances(np.arange(25.0).reshape(5, 5)), query=given, gallery=given, protocol=protocol
    )
    assert result.statistics.positives.tolist() == positive.sum(axis=1).tolist()
    assert result.statistics.ignored.tolist() == ignored.sum(axis=1).tolist()
    assert positive.any()


def test_columns_of_floats_are_no_columns_of_a_result() -> None:
    source, whole = se.Distances(np.ones((5, 5))), {**COLUMNS, "cam": [1] * 5}
    kept = se.evaluate(source, query=whole, gallery=whole, protocol="no-camera")
    assert set(kept.columns) == {"id", "cam", "clothes"}
    result = se.evaluate(source, query=COLUMNS, gallery=COLUMNS, protocol="no-camera")
    assert set(result.columns) == {"id", "clothes"}
    assert result.positive_cams is None
    assert kept.positive_cams is not None


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("clothes", "2 queries have no clothes to group by, the first of them query 1"),
        ("cam", "2 queries have no cam to group by, the first of them query 1"),
        ("cam-pair", "2 queries have no cam to group by"),
        ("score", "1 queries have no score to group by"),
        ("size", "'size' to group by holds numbers that are no integers, such as 1.5 of query 0"),
        (["a", "", "b", "c", "d"], "column of groups row 1 is an empty text"),
    ],
)
def test_groups_need_a_label_of_every_query(by: Any, message: str) -> None:
    sides = {**COLUMNS, "size": [1.5, 2, 3, 4, 5]}
    source = se.Distances(np.ones((5, 5)))
    with pytest.raises(se.InputError, match=message):
        se.evaluate(source, query=sides, gallery=sides, protocol="no-camera", group_by=by)


def test_pairs_of_cameras_need_a_camera_of_every_item() -> None:
    source, whole = se.Distances(np.ones((5, 5))), {**COLUMNS, "cam": [1] * 5}
    with pytest.raises(se.InputError, match="positives have no cameras to group by cam-pair"):
        se.evaluate(source, query=whole, gallery=COLUMNS, group_by="cam-pair")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": [1, None]}, "labels id row 1 is None"),
        ({"id": ["a", ""]}, "labels id row 1 is an empty text: a label is needed"),
        ({"id": [1, 2], "cam": [None, 0.5]}, "labels cam row 1 is 0.5"),
        ({"id": [1, 2], "site": [None, np.inf]}, "labels site row 1 is inf"),
        ({"id": [1, 2], "site": [None, True]}, "labels site holds values of type bool"),
        ({"id": [1, 2], "site": ["a", 0.5]}, "labels site holds values of type float, str"),
    ],
)
def test_what_no_label_is_is_refused(values: Any, message: str) -> None:
    with pytest.raises(se.InputError, match=message):
        se.Labels.of(values)


def test_labels_that_no_float_tells_apart_are_refused(tmp_path: Path) -> None:
    for write in (write_large_csv, write_large_parquet):
        with pytest.raises(se.InputError, match=r"has empty cells, and integers beyond 2\*\*53"):
            se.read_label_table(write(tmp_path), more=["site"])


def write_large_csv(folder: Path) -> Path:
    (folder / "l.csv").write_text(f"id,site\n1,{2**53 + 1}\n2,\n")
    return folder / "l.csv"


def write_large_parquet(folder: Path) -> Path:
    pq.write_table(pa.table({"id": [1, 2], "site": [2**53 + 1, None]}), folder / "l.parquet")
    return folder / "l.parquet"


def test_a_column_without_any_label_is_of_no_kind() -> None:
    query = se.Labels([1, 2], more={"site": [None, None]})
    for sites in (["a", "b"], [1, 2], [None, None]):
        gallery = se.Labels([1, 2], more={"site": sites})
        for own, other in ((query, gallery), (gallery, query)):
            rules = ("same(site)", "same(id, site)", "gallery.site == 'b'", "query.site == 3")
            if sites != [None, None]:
                rules = rules[:2]
            pairs = find_pairs(own, other, se.Protocol("mine", rules))
            assert pairs.positives()[1].tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["weather", "score"])
def test_numbers_of_one_table_and_texts_of_the_other_are_texts(kind: str, tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("id,site\n1,1\n2,\n3,3.5\n")
    (tmp_path / "g.csv").write_text(f"id,site\n1,{'rain' if kind == 'weather' else ''}\n2,3.5\n")
    query, gallery = se.read_label_tables(tmp_path / "q.csv", tmp_path / "g.csv", shared=["site"])
    texts = kind == "weather"
    assert columns_of(query)["site"] == (["1", None, "3.5"] if texts else [1.0, None, 3.5])
    assert columns_of(gallery)["site"] == (["rain", "3.5"] if texts else [None, 3.5])


def test_fingerprints_tell_other_labels() -> None:
    source, found = se.Distances(np.ones((5, 5))), []
    for score in ([0.5, None, 1, 2, 3], [0.5, 1, None, 2, 3], [-0.0, None, 1, 2, 3.5]):
        sides = {**COLUMNS, "score": score}
        result = se.evaluate(source, query=sides, gallery=sides, protocol="no-camera")
        found.append(result.provenance["label_fingerprints"]["gallery score"])
    assert len(set(found)) == 3
    sides = {**COLUMNS, "score": [0.0, float("-nan"), 1, 2, 3.5]}
    again = se.evaluate(source, query=sides, gallery=sides, protocol="no-camera")
    assert again.provenance["label_fingerprints"]["gallery score"] == found[2]


def test_own_images_without_a_key_take_part() -> None:
    keys = ["a", None, "", "b"]
    labels = se.Labels([1, 1, 2, 2], key=keys)
    pairs = find_pairs(labels, labels, se.Protocol("mine", self_match="key"))
    query, item = pairs.query, pairs.item
    assert query[~pairs.positive].tolist() == item[~pairs.positive].tolist() == [0, 3]


def test_a_table_with_missing_labels_on_the_command_line(data: Path) -> None:
    for side in ("query", "gallery"):
        head, *rows = Path(f"{side}.csv").read_text().splitlines()
        at = head.split(",").index("cam")
        cells = [row.split(",") for row in rows]
        for row, own in enumerate(cells):
            own[at] = "" if row % 3 == 0 else own[at]
        lines = [
            f"{head},score",
            *(",".join([*own, f"{row % 4}.5"]) for row, own in enumerate(cells)),
        ]
        Path(f"{side}_gaps.csv").write_text("\n".join(lines))
    Path("mine.toml").write_text("ignore = ['same(id, cam)', 'gallery.score < 1']\n")
    labels = ("--query-labels", "query_gaps.csv", "--gallery-labels", "gallery_gaps.csv")
    done = run(*STORED, *labels, "--protocol", "mine.toml", "--json", "--quiet", "--out", "out")
    assert done.exit_code == 0
    assert "labels of column cam of the query are missing: a missing label" in done.stderr
    sides = {
        side: se.read_label_table(f"{side}_gaps.csv", more=["score"])
        for side in ("query", "gallery")
    }
    assert not sides["query"].has_every("cam")
    expected = se.evaluate(
        se.Distances(STORED[-1]), **sides, protocol=se.read_protocol("mine.toml")
    )
    assert json.loads(done.stdout)["metrics"]["mAP"] == expected["mAP"]
    assert se.Evaluation.load("out")["mAP"] == expected["mAP"]
    refused(
        run(*STORED, *labels, "--protocol", "mine.toml", "--group-by", "cam"),
        "queries have no cam to group by",
    )


def test_ledgers_keep_missing_texts_and_refuse_floats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    features = {name: rng.standard_normal((n, 4)) for name, n in (("q", 20), ("g", 90))}
    labels = {}
    for name, rows in features.items():
        np.save(f"{name}.npy", rows)
        cams = rng.choice(["a", "b", ""], len(rows))
        labels[name] = {"id": rng.integers(0, 5, len(rows)), "cam": cams}
    ledger = se.Ledger.create("L", query="q.npy", query_labels=labels["q"])
    ledger.append("g.npy", labels["g"])
    expected = se.evaluate(se.Features("q.npy", "g.npy"), query=labels["q"], gallery=labels["g"])
    found = ledger.evaluation()
    assert found["mAP"] == expected["mAP"]
    assert found.positive_cams is None
    floats = {"id": [1, 2], "cam": [None, 3]}
    np.save("more.npy", features["g"][:2])
    with pytest.raises(se.InputError, match="labels has floats in column cam"):
        ledger.append("more.npy", floats)
    with pytest.raises(se.InputError, match="floats in column cam"):
        se.Ledger.create("M", query="more.npy", query_labels=floats)
    assert not Path("M").exists()


def test_an_item_without_a_label_is_in_no_gallery_of_a_label() -> None:
    rng = np.random.default_rng(7)
    source, ids = se.Distances(rng.random((6, 30))), rng.integers(0, 3, 36)
    view = [None if one == 3 else one for one in rng.integers(0, 4, 30).tolist()]
    sides = {"query": {"id": ids[:6]}, "gallery": {"id": ids[6:], "view": view}}
    protocol = se.Protocol("views", galleries="view")
    found = se.evaluate_all(source, **sides, protocols=[protocol], metrics="mAP")["views"]
    runs = found.runs  # type: ignore[union-attr]
    assert list(runs) == ["view 0", "view 1", "view 2"]
    sizes = [result.counts["gallery"] for result in runs.values()]
    assert sizes == [view.count(label) for label in range(3)]
    broken = {**sides, "gallery": {"id": ids[6:], "view": rng.random(30)}}
    with pytest.raises(se.OptionError, match="by which there are galleries, holds numbers that"):
        se.evaluate_all(source, **broken, protocols=[protocol])
    drawn = se.Protocol("drawn", trials={"per": ["view"]})  # type: ignore[arg-type]
    absent = view.index(None)
    says = f"draw per view, and {view.count(None)} labels of gallery are missing .* row {absent}"
    with pytest.raises(se.OptionError, match=says):
        se.evaluate_all(source, **sides, protocols=[drawn])
    fewer = se.Protocol("fewer", gallery="view != 1 and not view >= 2")
    few = se.evaluate(source, **sides, protocol=fewer, metrics="mAP")
    assert few.counts["gallery"] == view.count(0) + view.count(None)

"""Query expansion, augmentation and multi-query: features of the definitions, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from clusters import cluster, labels, write_inputs
from hypothesis import given
from hypothesis import strategies as st
from oracle_expansion import oracle_expanded, oracle_fused
from oracle_reranking import oracle_reranked
from profiles import examples
from spread import spread, with_daily
from support.expansion import made_features, powers, rows_of
from support.runs import plan_any_budget
from test_reranking import evaluate, images
from test_reranking import labels as some_labels
from test_reranking_stages import Stopped

import streameval as se

Array = npt.NDArray[Any]
METRICS = ("cosine", "euclidean", "sqeuclidean", "dot", "manhattan")
NAMES = ("aqe", "alpha-qe", "dba")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


def features(data: Path, metric: str = "cosine") -> se.Features:
    return se.Features(data / "q.npy", data / "g.npy", metric)


def fused(data: Path, source: Any, fuse: Any = "mean", **options: Any) -> se.MultiQuery:
    """Return queries fused with the gallery's images of their identity and camera."""
    own = labels(data)["gallery"]
    return se.MultiQuery(source, data / "g.npy", own, fuse, **options)


def sides(source: Any, **given: Any) -> tuple[Array, Array]:
    """Return the rows of the queries and the gallery that a source makes."""
    made = made_features(source, **given)
    return rows_of(made.query), rows_of(made.gallery)


def agree(found: Array, expected: Array) -> bool:
    scale = np.abs(expected).max(axis=1, keepdims=True)
    return found.dtype == np.float32 and bool((np.abs(found - expected) <= 1e-6 * scale).all())


@pytest.mark.parametrize("kind", ["random", "clustered", "few values", "copies", "half"])
@given(data=st.data())
@examples(20)
def test_features_are_those_of_the_definition(kind: str, data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 90))
    name = draw(st.sampled_from(NAMES))
    metric = draw(st.sampled_from(("cosine", "dot") if name == "alpha-qe" else METRICS))
    k = draw(st.sampled_from([1, 2, 5, 10, 200]))
    alpha = draw(st.sampled_from([0, 1, 3, 0.5, 2.75])) if name == "alpha-qe" else None
    rows = images(rng, kind, queries + items, 33)
    query, gallery = rows[:queries], rows[queries:]
    source: Any = se.Expanded(se.Features(query, gallery, metric), name, k=k, alpha=alpha)
    found = sides(source, threads=draw(st.sampled_from([1, 2])))
    expected = oracle_expanded(query, gallery, metric, name, k, 3.0 if alpha is None else alpha)
    side = int(name == "dba")
    assert agree(found[side], expected)
    if name != "alpha-qe":  # the same operations, one by one
        assert np.array_equal(found[side], expected.astype(np.float32))
    assert np.array_equal(found[1 - side], (gallery, query)[side])


@pytest.mark.parametrize("fuse", ["mean", "max"])
@given(data=st.data())
@examples(20)
def test_fused_queries_are_those_of_the_definition(fuse: Any, data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, rows = draw(st.integers(1, 12)), draw(st.integers(0, 90))
    metric, kind = draw(st.sampled_from(METRICS)), draw(st.sampled_from(["random", "few values"]))
    query, gallery = images(rng, kind, queries, 33), images(rng, "random", 20, 33)
    more = images(rng, kind, max(rows, 1), 33)[:rows].astype(draw(st.sampled_from(["f4", "f8"])))
    own, of_more = rng.integers(0, 3, (queries, 2)), rng.integers(0, 4, (rows, 2))
    source = se.MultiQuery(
        se.Features(query, gallery, metric), more, {"id": of_more[:, 0], "cam": of_more[:, 1]}, fuse
    )
    given = some_labels(rng, queries, 20) | {"query": se.Labels(own[:, 0], own[:, 1])}
    found = sides(source, **given)
    expected = oracle_fused(query, own, more, of_more, metric, fuse)
    assert agree(found[0], expected)
    assert np.array_equal(found[0], expected.astype(np.float32))
    assert np.array_equal(found[1], gallery)


def test_powers_are_close_and_whole_ones_are_products() -> None:
    values = np.concatenate([np.random.default_rng(0).random(300), [0.0, 1.0, -0.5, 1e-9, 3.0]])
    assert np.array_equal(powers(values, 1), np.maximum(values, 0))
    assert np.array_equal(powers(values, 2), np.maximum(values, 0) ** 2)
    assert np.array_equal(powers(values, 0), np.ones(len(values)))
    with localcontext() as context:
        context.prec = 50
        for exponent in (0.1, 0.75, 3.0, 2.9999, 17.3):
            for value, found in zip(values.tolist(), powers(values, exponent), strict=True):
                exact = Decimal(max(value, 0.0)) ** Decimal(exponent)
                assert abs(Decimal(float(found)) - exact) <= Decimal("1e-13") * exact


MAKERS: dict[str, Callable[[Path, Any], Any]] = {
    "aqe": lambda data, source: se.Expanded(source, "aqe", k=6),
    "alpha-qe": lambda data, source: se.Expanded(source, "alpha-qe", k=6, alpha=1.5),
    "dba": lambda data, source: se.Expanded(source, "dba", k=4),
    "dba, aqe": lambda data, source: se.Expanded(se.Expanded(source, "dba", k=4), "aqe", k=6),
    "multi-query": fused,
    "multi-query, dba, alpha-qe": lambda data, source: se.Expanded(
        se.Expanded(fused(data, source, "max"), "dba", k=3), "alpha-qe"
    ),
}


@pytest.mark.parametrize(("steps", "metric"), spread(MAKERS, ["cosine", "dot"]))
def test_statistics_are_those_of_the_new_features(folder: Path, steps: str, metric: str) -> None:
    source = MAKERS[steps](folder, features(folder, metric))
    made = sides(source, **labels(folder))
    expected = evaluate(se.Features(*made, metric), **labels(folder))
    found = evaluate(source, **labels(folder), tile=(50, 700), threads=2)
    assert found.statistics.equals(expected.statistics)
    assert found["mAP"] == expected["mAP"]
    if metric == "cosine":
        options = {"k1": 8, "k2": 3}
        again = se.Reranked(se.Features(*made), **options)
        found = evaluate(se.Reranked(source, **options), **labels(folder))
        assert found.statistics.equals(evaluate(again, **labels(folder)).statistics)


def test_reranked_distances_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(1)
    rows = images(rng, "clustered", 100, 33)
    source = se.Expanded(se.Features(rows[:10], rows[10:]), "aqe", k=3)
    query, gallery = sides(source)
    blocks = se.Reranked(source, k1=5, k2=2).distance_blocks(range(10), 1 << 14)
    found = np.concatenate([block for _, block in blocks], axis=1)
    expected = oracle_reranked(query, gallery, "cosine", k1=5, k2=2, lambda_=0.3)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("steps", with_daily(MAKERS, "aqe", "multi-query, dba, alpha-qe"))
def test_bits_are_the_same_in_any_chunks_threads_and_blocks(
    folder: Path, steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, gallery = np.load(folder / "q.npy"), np.load(folder / "g.npy")
    expected = sides(MAKERS[steps](folder, se.Features(query, gallery)), **labels(folder))
    for side, rows, chunks in (("q", query, (7, 24)), ("g", gallery, (311, 10))):
        zarr.create_array(folder / f"{side}.zarr", data=rows, chunks=chunks)
    chunked = se.Features(folder / "q.zarr", folder / "g.zarr")
    options: list[dict[str, Any]] = [{"threads": 1}, {"threads": 2, "memory": "140MB"}]
    plan_any_budget(monkeypatch)
    monkeypatch.setattr("streameval.expansion.written.MOST_BYTES", 100_000)
    for session in options:
        found = sides(MAKERS[steps](folder, chunked), **labels(folder), **session)
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one, other)


def test_rows_are_few_or_none() -> None:
    rng = np.random.default_rng(0)
    one = images(rng, "random", 3, 8)
    assert np.array_equal(sides(se.Expanded(se.Features(one, one[:1], "dot"), "dba"))[1], one[:1])
    none = se.Features(one, one[:0], "dot")
    assert np.array_equal(sides(se.Expanded(none, "aqe"))[0], one)
    assert sides(se.Expanded(none, "dba"))[1].shape == (0, 8)
    assert sides(se.Expanded(se.Features(one[:1], one), "aqe", k=7))[0].shape == (1, 8)


@pytest.mark.parametrize("stop", ["expanding", "positives", "counting"])
@pytest.mark.parametrize("name", ["aqe", "dba"])
def test_neighbors_are_not_looked_for_again(folder: Path, name: Any, stop: str) -> None:
    kept: dict[str, Any] = {"checkpoint": folder / "kept", "resume": True, **labels(folder)}
    source = se.Expanded(features(folder), name, k=6)
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(source, progress=Stopped(stop), **kept)
    resumed, whole = Stopped(), Stopped()
    found = se.evaluate(source, progress=resumed, threads=1, **kept)
    expected = se.evaluate(source, progress=whole, **labels(folder))
    assert whole.passes == ["neighbors", "expanding", "positives", "counting"]
    assert found.statistics.equals(expected.statistics)


def test_a_folder_serves_other_evaluations_and_holds_neighbors_alone(folder: Path) -> None:
    kept = folder / "made"
    options = {"k": 5, "folder": kept}
    source = se.Expanded(se.Expanded(features(folder), "dba", **options), "aqe", **options)
    first = se.evaluate(source, **labels(folder))
    again = se.evaluate(source, **labels(folder), metrics="mAP")
    assert first["mAP"] == again["mAP"]
    assert {one.name for one in kept.iterdir()} == {"dba 1", "aqe 2"}
    np.save(folder / "q.npy", np.load(folder / "q.npy") + 1)
    changed = se.Expanded(se.Expanded(features(folder), "dba", **options), "aqe", **options)
    with pytest.raises(se.OutputError, match="of another evaluation"):
        se.evaluate(changed, **labels(folder))


@pytest.mark.slow
@pytest.mark.parametrize("steps", MAKERS)
def test_workers_of_a_cluster_give_the_same(folder: Path, steps: str) -> None:
    source = MAKERS[steps](folder, features(folder))
    expected = se.evaluate(source, **labels(folder))
    with cluster(2) as (_, client):
        found = se.evaluate(source, **labels(folder), client=client)
        assert found.statistics.equals(expected.statistics)
        again = se.evaluate(se.Reranked(source), **labels(folder), client=client)
    assert again.statistics.equals(se.evaluate(se.Reranked(source), **labels(folder)).statistics)


def test_what_was_done_is_told(folder: Path) -> None:
    source = MAKERS["multi-query, dba, alpha-qe"](folder, features(folder))
    result = se.evaluate(se.Reranked(source), **labels(folder))
    names = [step["name"] for step in result.provenance["inputs"]["steps"]]
    assert names == ["multi-query", "dba", "alpha-qe", "k-reciprocal"]
    assert "dba (k 3) · alpha-qe (k 10, alpha 3.0)" in result._repr_html_()


@pytest.mark.parametrize("steps", MAKERS)
def test_a_budget_that_is_too_small_is_refused_before_any_work(folder: Path, steps: str) -> None:
    progress = Stopped()
    source = MAKERS[steps](folder, features(folder))
    with pytest.raises(se.BudgetError, match="too small for"):
        se.evaluate(source, **labels(folder), memory="200MB", threads=8, progress=progress)
    assert progress.passes == []


@pytest.mark.parametrize(
    ("metric", "given", "said"),
    [
        ("cosine", {"name": "qe"}, "unknown expansion 'qe'; known expansions: aqe, alpha-qe, dba"),
        ("cosine", {"name": "aqe", "k": 0}, "k is 0; a whole number of at least 1 is needed"),
        ("cosine", {"name": "dba", "k": 2.5}, "k is 2.5; a whole number of at least 1 is needed"),
        ("cosine", {"name": "aqe", "alpha": 3}, "alpha is 3, and aqe has no weights"),
        ("cosine", {"name": "alpha-qe", "alpha": -1}, "alpha is -1; a number from 0 to 1000"),
        ("cosine", {"name": "alpha-qe", "alpha": np.nan}, "alpha is nan; a number from 0"),
        ("euclidean", {"name": "alpha-qe"}, "the metric is euclidean; expected one of cosine, dot"),
    ],
)
def test_options_out_of_bounds_are_refused(
    folder: Path, metric: str, given: Any, said: str
) -> None:
    with pytest.raises(se.OptionError, match=said):
        se.Expanded(features(folder, metric), **given)


def test_sources_without_features_are_refused(folder: Path) -> None:
    stored: Any = se.Distances(folder / "d.zarr")
    for make in (lambda: se.Expanded(stored, "aqe"), lambda: fused(folder, stored)):
        with pytest.raises(se.OptionError, match=r"is of type Distances; Features\(query"):
            make()
    with pytest.raises(se.OptionError, match="the metric is dot; expected one of"):
        se.Reranked(se.Expanded(features(folder, "dot"), "aqe"))


def test_further_images_that_do_not_fit_are_refused(folder: Path) -> None:
    rows, own = np.ones((5, 24), np.float32), np.arange(5)
    source = features(folder)
    with pytest.raises(se.OptionError, match="fuse is 'sum'; expected mean or max"):
        se.MultiQuery(source, rows, {"id": own, "cam": own}, "sum")  # type: ignore[arg-type]
    with pytest.raises(se.InputError, match="the features have 24 columns"):
        se.MultiQuery(source, rows[:, 1:], {"id": own, "cam": own})
    with pytest.raises(se.InputError, match="have 5 rows, and labels 4 ids"):
        se.MultiQuery(source, rows, {"id": own[1:], "cam": own[1:]})
    with pytest.raises(se.InputError, match="labels have no cam"):
        se.MultiQuery(source, rows, {"id": own})
    progress, given = Stopped(), labels(folder)
    no_cams = {**given, "query": se.Labels(given["query"].id), "protocol": "no-camera"}
    kept = se.MultiQuery(source, rows, {"id": own, "cam": own})
    with pytest.raises(se.InputError, match="labels have no cam"):
        se.evaluate(kept, progress=progress, **no_cams)
    texts = se.MultiQuery(source, rows, {"id": list("abcde"), "cam": own})
    with pytest.raises(se.InputError, match="are integers and strings"):
        se.evaluate(texts, progress=progress, **given)
    assert progress.passes == []


@pytest.mark.parametrize("steps", ["dba, aqe", "multi-query"])
def test_a_bad_row_is_named_by_its_own_array(folder: Path, steps: str) -> None:
    rows = np.load(folder / "g.npy")
    rows[5, 3] = np.nan
    np.save(folder / "g.npy", rows)
    source = MAKERS[steps](folder, features(folder))
    with pytest.raises(se.InputError, match=r"g\.npy.* row 5 holds nan in column 3"):
        se.evaluate(source, **labels(folder))


def test_expanded_rows_that_have_no_distance_are_named() -> None:
    rows = np.eye(2, dtype=np.float32)
    source = se.Expanded(se.Features(rows, -rows[:1], "cosine"), "aqe")
    with pytest.raises(se.InputError, match=r"after aqe .* zero vector"):
        evaluate(source, query={"id": [0, 1]}, gallery={"id": [0]}, protocol="no-camera")


@pytest.mark.slow
def test_runs_with_other_steps_are_compared_but_not_averaged(folder: Path) -> None:
    sources = features(folder), se.Expanded(features(folder), "aqe", k=3)
    runs = [se.evaluate(one, **labels(folder)) for one in sources]
    assert "mAP" in str(se.compare(*runs))
    with pytest.raises(se.InputError, match=r"differ in distance: steps None and .*aqe"):
        se.average(runs)


def test_features_that_cannot_be_written_are_one_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    source = se.Expanded(features(folder), "aqe", folder=folder / "file" / "made")
    with pytest.raises(se.OutputError, match="can't be kept on disk: Not a directory"):
        se.evaluate(source, **labels(folder))

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.lib.format.write_array_header_1_0", full)
    with pytest.raises(se.OutputError, match="can't be kept on disk: No space left on device"):
        made_features(se.Expanded(se.Features(np.eye(3), np.eye(3)), "aqe"))

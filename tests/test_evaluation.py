"""evaluate(): what it takes, what it refuses, and what its options do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from support.run import parse_bytes
from support.runs import prepare
from test_exactness import GALLERY, QUERIES, labels, normal

import streameval as se


def problem(seed: int = 0) -> tuple[Any, Any, dict[str, se.Labels]]:
    rng = np.random.default_rng(seed)
    return *normal(rng), labels(rng, QUERIES, GALLERY)


def test_options_of_a_protocol_hold_for_a_protocol_object_too() -> None:
    q, g, sides = problem()
    named = prepare(se.Features(q, g), **sides, protocol="no-camera", junk_ids=[3])
    given = prepare(se.Features(q, g), **sides, protocol=se.PROTOCOLS["no-camera"], junk_ids=[3])
    assert named.request.protocol == given.request.protocol
    assert given.request.protocol.junk_ids == (3,)
    own = replace(se.PROTOCOLS["no-camera"], name="mine", self_match="index")
    same = {"query": sides["gallery"], "gallery": sides["gallery"]}
    assert prepare(se.Features(g, g), **same, protocol=own).request.protocol == own


def test_without_labels_no_pairs_are_made_up() -> None:
    q, g, _ = problem()
    with pytest.raises(RuntimeError, match="without labels there are no pairs"):
        prepare(se.Features(q, g), without_labels=True)


def test_single_metric_options_go_before_the_whole_set() -> None:
    q, g, sides = problem()
    options = se.MetricOptions(ap="trapezoid", cmc_ranks=(1, 3))
    result = se.evaluate(se.Features(q, g), **sides, options=options, ties="optimistic")
    assert result.options == replace(options, ties="optimistic")
    assert "CMC@3" in result.metrics.scalars


def test_the_first_bad_row_is_named_whichever_pass_meets_one_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    g = rng.standard_normal((6000, 8)).astype(np.float32)
    ids = np.full(6000, 7)
    ids[4000] = 1
    g[[5, 4000]] = np.nan  # only the later one is a positive, whose distance is wanted first
    np.save(tmp_path / "g.npy", g)
    sides = {"query": se.Labels(np.array([1])), "gallery": se.Labels(ids)}
    source = se.Features(np.ones((1, 8), np.float32), tmp_path / "g.npy")
    with pytest.raises(se.InputError, match=r"g\.npy \(6000, 8\) row 5 holds nan in column 0"):
        se.evaluate(source, **sides, protocol="no-camera")


def test_the_first_bad_distance_is_named(tmp_path: Path) -> None:
    import zarr

    matrix = np.ones((8, 50))
    matrix[6, 2] = np.inf
    matrix[1, 49] = np.nan
    array = zarr.create_array(tmp_path / "d.zarr", shape=(8, 50), chunks=(4, 10), dtype="f8")
    array[:] = matrix
    sides = {"query": se.Labels(np.arange(8)), "gallery": se.Labels(np.arange(50))}
    with pytest.raises(se.InputError, match=r"holds nan in row 1, column 49"):
        se.evaluate(se.Distances(tmp_path / "d.zarr"), **sides, protocol="no-camera")


def test_integers_beyond_float64_are_refused() -> None:
    matrix = np.array([[1, 2**53 + 1], [3, 4]])
    sides = {"query": se.Labels(np.arange(2)), "gallery": se.Labels(np.arange(2))}
    with pytest.raises(se.InputError, match=r"holds 9007199254740993 in row 0, column 1"):
        se.evaluate(se.Distances(matrix), **sides, protocol="no-camera")


@pytest.mark.parametrize("scale", [1e152, 1e300])
def test_vectors_too_long_to_be_squared_are_refused(scale: float) -> None:
    q, g, sides = problem()
    with pytest.raises(se.InputError, match=r"row \d+ (is too long a vector|holds inf)"):
        se.evaluate(se.Features(q, g * scale, "euclidean"), **sides)


def test_distances_without_a_finite_range_are_refused() -> None:
    matrix = np.array([[-1e308, 1e308], [0, 1]])
    sides = {"query": se.Labels(np.arange(2)), "gallery": se.Labels(np.arange(2))}
    with pytest.raises(se.InputError, match="no finite range"):
        se.evaluate(se.Distances(matrix), **sides, protocol="no-camera")
    with pytest.raises(se.OptionError, match="HI - LO is beyond float64"):
        se.evaluate(se.Distances(matrix), **sides, protocol="no-camera", range=(-1e308, 1e308))


def test_one_rule_for_positives_and_negatives_at_the_end_of_a_range() -> None:
    high = np.nextafter(1.0, 2.0)
    sides = {"query": se.Labels(np.array([1])), "gallery": se.Labels(np.array([1, 2]))}
    outcomes = []
    for row in ([high, 0.0], [0.0, high]):  # beyond for the positive, then for the negative
        try:
            se.evaluate(
                se.Distances(np.array([row])), **sides, protocol="no-camera", range=(-1e6, 1.0)
            )
            outcomes.append("taken")
        except se.InputError as error:
            outcomes.append(str(error).split(" is ")[1])
    assert outcomes[0] == outcomes[1]


def test_a_range_that_turns_out_to_need_the_data_keeps_its_plan() -> None:
    rng = np.random.default_rng(2)
    q, g = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in normal(rng))
    g[-1] *= 1.5
    sides = labels(rng, QUERIES, GALLERY)
    before = prepare(se.Features(q, g, "euclidean"), **sides)
    after = before.with_range_from_data()
    assert after.plan.parts == before.plan.parts
    assert after.plan.tasks == before.plan.tasks
    assert after.plan.flops == 2 * before.plan.flops


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"tile": (0, 5)}, r"tile is \(0, 5\)"),
        ({"memory": "much"}, "memory is 'much'"),
        ({"memory": -1}, "memory is -1"),
        ({"memory": b"2GB"}, "memory is b'2GB'; expected a size such as"),
        ({"memory": np.inf}, "memory is inf"),
        ({"range": (1, 2, 3)}, "range is"),
        ({"range": 2}, "range is 2; expected auto, minmax, minmax-all, or two numbers"),
        ({"range": np.array([0, 1, 2])}, r"range is array\(\[0, 1, 2\]\)"),
        ({"range": ("0", "2")}, "range is"),
        ({"range": ""}, "range is ''"),
        ({"threads": True}, "threads is True"),
        ({"tile": 5}, "tile is 5"),
        (
            {"protocol": "market"},
            "allshots, cloth-changing, cuhk03",
        ),
        ({"self_match": "name"}, ".index. or .key. is needed"),
        ({"ties": "none"}, "pessimistic, optimistic, stable, expected"),
        ({"query": np.arange(QUERIES)}, "Labels are needed"),
        ({"resume": True}, "resume goes on with the work kept in a checkpoint"),
        ({"junk_ids": 3}, "junk_ids of protocol market1501 is 3; a list of integers or strings"),
        ({"junk_ids": "34"}, "junk_ids of protocol market1501 is '34'; a list of"),
        ({"protocol": 3}, "protocol is 3; expected a Protocol, or the name of one: allshots"),
        ({"metrics": 3}, "metrics is 3; expected names such as CMC@1,mAP"),
        ({"refine": 3}, "refine is 3; expected names"),
        (
            {"options": {"ties": "stable"}},
            "options is of type dict; MetricOptions",
        ),
        ({"client": "tcp://host:1"}, "client is of type str; a distributed.Client is needed"),
        ({"progress": 3}, "progress is of type int; an object of a subclass of Progress"),
        ({"listed": 3}, "listed is of type int; ListedPairs are needed"),
        ({"preset": ["oml"]}, r"unknown preset \['oml'\]; known presets: torchreid"),
        ({"checkpoint": 3}, "checkpoint is of type int; a path, str or Path, is needed"),
    ],
)
def test_options_that_cannot_be_used(option: dict[str, Any], message: str) -> None:
    q, g, sides = problem()
    with pytest.raises((se.OptionError, se.InputError), match=message):
        se.evaluate(se.Features(q, g), **(sides | option))


class Tensor:
    """What another library's array is to NumPy; one on another device can't be taken."""

    def __init__(self, values: Any, device: str = "cpu") -> None:
        self.values, self.device = values, device

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.device != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
        return np.asarray(self.values, dtype)


def test_arrays_of_other_libraries_are_taken_as_numpy_takes_them() -> None:
    q, g, sides = problem()
    expected = se.evaluate(se.Features(q, g), **sides).statistics
    ids = se.Labels(Tensor(sides["query"].id), Tensor(sides["query"].cam))  # type: ignore[arg-type]
    wide = np.zeros((g.shape[0], 2 * g.shape[1]), g.dtype)
    wide[:, ::2] = g
    fixed = g.copy()
    fixed.flags.writeable = False
    for one in (Tensor(g), g.tolist(), np.asfortranarray(g), wide[:, ::2], fixed):
        found = se.evaluate(se.Features(Tensor(q), one), **sides | {"query": ids})
        assert found.statistics.equals(expected)
    away = -(q @ g.T)
    lists, distances = np.argsort(away, axis=1), np.sort(away, axis=1)
    expected = se.evaluate(se.Neighbors(lists, distances), **sides).statistics
    for take in (Tensor, np.ndarray.tolist):
        found = se.evaluate(se.Neighbors(take(lists), take(distances)), **sides)
        assert found.statistics.equals(expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "got a builtins.NoneType; an array, a list of rows, or the path of a file"),
        (b"g.npy", "got a builtins.bytes"),
        ([[1.0], [1.0, 2.0]], "array in memory can't be made an array of NumPy: setting an array"),
        (Tensor([[1.0]], "cuda"), "made an array of NumPy: .* Use Tensor.cpu"),
        (np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2)), "array in memory has masked values"),
        (zarr.zeros((2, 2)), "Zarr array is incomplete: 1 of its chunks are absent"),
    ],
)
def test_arrays_that_cannot_be_taken(source: Any, message: str) -> None:
    with pytest.raises(se.InputError, match=message):
        se.Distances(source)
    with pytest.raises(se.InputError, match=message):
        se.Features(np.ones((2, 2)), source)


def test_what_is_no_source_and_what_are_no_labels_is_refused() -> None:
    """Without labels of both sides, a plan alone can be made: not a number must come of that."""
    q, g, sides = problem()
    source = se.Features(q, g)
    for side in sides:
        with pytest.raises(se.InputError, match=f"{side} is of type NoneType; Labels are needed"):
            se.evaluate(source, **sides | {side: None})
    with pytest.raises(se.InputError, match="query is of type NoneType"):
        se.evaluate(source, query=None, gallery=None)  # type: ignore[arg-type]
    with pytest.raises(se.InputError, match="gallery is of type NoneType"):
        se.compare_index(source, ["Flat"], query=sides["query"], gallery=None, k=5)  # type: ignore[arg-type]
    for changed, words in (
        ({"features": q}, r"features is of type ndarray; Features\(query, gallery\) is needed"),
        ({"k": 2.5}, "k is 2.5; a whole number"),
        ({"settings": "Flat"}, r"settings is 'Flat'; a list of them is needed: \['Flat'\]"),
    ):
        given: Any = {"features": source, "settings": ["Flat"], "k": 5, **sides}
        with pytest.raises((se.InputError, se.OptionError), match=words):
            se.compare_index(**(given | changed))
    for wrong in (q, (q, g), "g.npy", se.Features):
        with pytest.raises(se.InputError, match=r"the source is of type .*; Features\(query, gall"):
            se.evaluate(wrong, **sides)  # type: ignore[arg-type]


def test_options_may_be_numbers_and_arrays_of_numpy() -> None:
    q, g, sides = problem()
    source = se.Features(q, g)
    expected = se.evaluate(source, **sides, range=(0, 2), memory=8 * 10**9, tile=(8, 9))
    for given in (np.array([0, 2]), [0, np.float32(2)]):
        found = se.evaluate(
            source,
            **sides,
            range=given,
            memory=np.int64(8 * 10**9),
            threads=np.int64(1),
            tile=np.array([8, 9]),
        )
        assert found.statistics.equals(expected.statistics)
        assert found.summary()["options"] == expected.summary()["options"]
    drawn = se.evaluate(source, **sides, protocol="cuhk03", shot_draws=np.int64(3))
    assert drawn.summary()["provenance"]["protocol"]["shot_draws"] == 3


def test_several_ranks_or_rates_are_needed_where_they_may_be() -> None:
    for option in ({"cmc_ranks": 3}, {"dir_ranks": "12"}, {"false_accept_rates": 0.5}):
        name, value = next(iter(option.items()))
        words = rf"{name}: got {value!r}; expected several of them: \({value!r},\)"
        with pytest.raises(se.OptionError, match=words):
            se.MetricOptions(**option)  # type: ignore[arg-type]


def test_what_an_object_says_of_itself_fits_in_a_few_lines() -> None:
    q, g, sides = problem()
    result = se.evaluate(se.Features(q, g), **sides, metrics="CMC@1,mAP")
    sizes = f"{QUERIES} queries × {GALLERY} gallery items"
    told = f"CMC@1 {result['CMC@1']:.6g}, mAP {result['mAP']:.6g}"
    assert repr(result) == f"<Evaluation of {sizes}: {told}>"
    assert repr(result.metrics) == f"<Metrics: {told}>"
    assert repr(result.statistics).startswith(f"<RankStatistics of {QUERIES} queries, ")
    array = f"<array in memory: float64 {q.shape}>"
    assert repr(se.Features(q, g, "dot")).startswith(f"Features({array}, ")
    assert repr(se.Distances(q)) == f"Distances({array})"


def test_names_that_a_result_does_not_have() -> None:
    q, g, sides = problem()
    result = se.evaluate(se.Features(q, g), **sides)
    with pytest.raises(se.OptionError, match="unknown option 'tie'; known options: ties, ap, vp"):
        result.with_options({"tie": "stable"})
    with pytest.raises(KeyError, match="no metric 3; there are CMC@1"):
        result[3]  # type: ignore[index]


def test_arguments_of_another_type_are_told_with_what_is_needed() -> None:
    q, g, sides = problem()
    features = se.Features(q, g)
    given: dict[str, Any] = sides | {"protocol": "no-camera"}
    result: Any = se.evaluate(features, **given, metrics="mAP", progress=False)  # type: ignore[arg-type]
    wrong: Any = 3
    for refused in (
        lambda: result.save(wrong),
        lambda: se.Evaluation.load(wrong),
        lambda: se.compare(result, wrong),
        lambda: se.read_label_table(wrong),
        lambda: se.read_protocol(wrong),
        lambda: se.read_listed_pairs(wrong, queries=1, gallery=sides["gallery"]),
    ):
        with pytest.raises(se.OptionError, match="path is of type int; a path, str or Path, is"):
            refused()
    with pytest.raises(se.OptionError, match="query is of type str; a whole number is needed"):
        result.precision_recall("1")
    with pytest.raises(se.OptionError, match="despite is of type int; some of protocol, gallery"):
        se.compare(result, result, despite=wrong)
    with pytest.raises(se.OptionError, match="metrics is 3; expected names"):
        se.compare(result, result, metrics=wrong)
    with pytest.raises(se.OptionError, match=r"settings is 3; a list of them is needed: \[3\]"):
        se.compare_index(features, wrong, k=1, **given)
    for option in ("options", "progress"):
        with pytest.raises(se.OptionError, match=f"{option} is of type int"):
            se.compare_index(features, ["Flat"], k=1, **given, **{option: wrong})
    for option, expected in (("width", "a fraction"), ("train_rows", "a positive number")):
        with pytest.raises(se.OptionError, match=f"{option} is 'x'; .*{expected}"):
            se.Neighbors(features=features, index="IVF4,Flat", k=1, **{option: "x"})
    for index in ("Flat", "trained.faiss"):
        with pytest.raises(se.OptionError, match=f"index {index} is not trained here"):
            se.Neighbors(features=features, index=index, k=1, train_rows=10)


def test_neighbors_are_of_features_and_of_whole_numbers() -> None:
    lists, distances = [[0, 1]], [[0.5, 1.0]]
    sides = {"query": se.Labels([1]), "gallery": se.Labels([1, 2]), "protocol": "no-camera"}
    few, same = (se.Neighbors(lists, distances, k=k) for k in (np.int64(1), 1))
    results = [se.evaluate(one, **sides).statistics for one in (few, same)]
    assert results[0].equals(results[1])
    with pytest.raises(se.InputError, match="are of a gallery of 3 items, and there are 2 gallery"):
        se.evaluate(se.Neighbors(lists, distances, gallery=3), **sides)
    with pytest.raises(se.OptionError, match=r"features is of type ndarray; Features\(query, gall"):
        se.Neighbors(lists, features=np.ones((1, 2)))  # type: ignore[arg-type]
    with pytest.raises(se.OptionError, match="k is True"):
        se.Neighbors(lists, distances, k=True)


def test_sizes_as_people_write_them() -> None:
    sizes = {"2GB": 2 * 10**9, "500 MiB": 500 * 2**20, "1.5k": 1500, "7": 7, 9: 9, 1e9: 10**9}
    assert {size: parse_bytes(size) for size in sizes} == sizes


def test_a_transposed_matrix_and_missing_labels_are_told_apart() -> None:
    sides = {"query": se.Labels(np.arange(3)), "gallery": se.Labels(np.arange(5))}
    with pytest.raises(se.InputError, match="the matrix is transposed"):
        se.evaluate(se.Distances(np.ones((5, 3))), **sides, protocol="no-camera")
    with pytest.raises(se.InputError, match=r"distances array in memory have 4 columns, and .* 5"):
        se.evaluate(se.Distances(np.ones((3, 4))), **sides, protocol="no-camera")
    with pytest.raises(se.OptionError, match="choose protocol no-camera"):
        se.evaluate(se.Distances(np.ones((3, 5))), **sides)

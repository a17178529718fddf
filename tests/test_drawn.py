"""Trials whose rows are given: in memory, or as a benchmark's own file has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import test_benchmark_trials as official
from oracle import Array
from oracle_benchmarks import Trial, write_permutations
from spread import spread
from support.protocols import View
from support.run import checkpoint_module, passes_module
from test_benchmark_protocols import METRICS, average, check_alone, check_average, data, sources
from test_benchmark_trials import DRAWN, RECORDED, check

import streameval as se
from streameval.errors import InputError, OptionError, OutputError

Labels = dict[str, Array]

STORED = {
    "sysu-all-1-shot": ("sysu-mm01/all", 1),
    "sysu-all-10-shot": ("sysu-mm01/all", 10),
    "sysu-indoor-1-shot": ("sysu-mm01/indoor", 1),
    "sysu-indoor-10-shot": ("sysu-mm01/indoor", 10),
}


@pytest.fixture(scope="module")
def permutations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the drawing orders of the images."""
    path = tmp_path_factory.mktemp("sysu") / "rand_perm_cam.mat"
    write_permutations(path, official.sysu()[2])
    return path


def given_rows(trials: list[Trial]) -> list[Array]:
    """Return the gallery rows of trials, in the order in which they were drawn."""
    return [items for _, items in trials]


@pytest.mark.parametrize(("name", "kind"), spread(STORED, [0, 1]))
def test_figures_with_the_permutations_of_the_benchmark(
    name: str, kind: int, permutations: Path
) -> None:
    sides, query, gallery = data("sysu")
    protocol, shots = STORED[name]
    drawn = se.read_drawn(permutations, shots=shots, gallery=gallery, protocol=protocol)
    benchmark, trials = DRAWN[name]()
    for own, rows in zip(drawn, given_rows(trials), strict=True):
        assert np.array_equal(own, np.sort(rows))
    found = average(sources(sides)[kind], query, gallery, protocol, drawn=drawn)
    for run, wanted in zip(found.runs.values(), RECORDED[name]["trials"], strict=True):
        check(dict(run.metrics), name, wanted)
    check(dict(found.mean), name, RECORDED[name]["mean"])
    check_average(found, benchmark, trials, "pessimistic")


@pytest.mark.parametrize("name", ["vehicleid-shuffle", "vehicleid-choice"])
def test_figures_of_galleries_that_the_code_drew(name: str) -> None:
    sides, ids, _ = data(name)
    benchmark, trials = DRAWN[name]()
    found = average(sources(sides)[0], ids, ids, "vehicleid", drawn=given_rows(trials))
    for run, wanted in zip(found.runs.values(), RECORDED[name]["trials"], strict=True):
        check(dict(run.metrics), name, wanted)
    check(dict(found.mean), name, RECORDED[name]["mean"])
    check_average(found, benchmark, trials, "pessimistic")


def test_a_trial_that_is_given_equals_an_evaluation_of_its_rows_alone() -> None:
    sides, query, gallery = data("sysu")
    _, trials = DRAWN["sysu-all-10-shot"]()
    protocol = se.PROTOCOLS["sysu-mm01/all"]
    for kind in (0, 1):
        found = average(sources(sides)[kind], query, gallery, protocol, drawn=given_rows(trials))
        for run, (asking, items) in zip(found.runs.values(), trials[:3], strict=False):
            rows = asking, np.sort(items)
            part = sides[0][rows[0]], sides[1][rows[1]]
            alone = se.evaluate(
                sources(part)[kind],
                query={name: own[rows[0]] for name, own in query.items()},
                gallery={name: own[rows[1]] for name, own in gallery.items()},
                protocol=View("", *rows).protocol(protocol),
                metrics=METRICS,
            )
            check_alone(run, alone)


def test_rows_that_would_be_drawn_give_the_same() -> None:
    for name, protocol in (
        ("llcm-ir-to-vis", "llcm/ir-to-vis"),
        ("llcm-vis-to-ir", "llcm/vis-to-ir"),
    ):
        sides, query, gallery = data(name)
        side = 0 if name == "llcm-vis-to-ir" else 1
        rows = [trial[side] for trial in DRAWN[name]()[1]]
        own = average(sources(sides)[0], query, gallery, protocol)
        found = average(sources(sides)[0], query, gallery, protocol, drawn=rows)
        assert list(found.runs) == list(own.runs)
        for one, other in zip(found.runs.values(), own.runs.values(), strict=True):
            check_alone(one, other)


@pytest.fixture
def problem() -> dict[str, Any]:
    """Return nine items of three people, and a protocol that draws from the first eight."""
    rng = np.random.default_rng(5)
    protocol = se.Protocol(
        "mine",
        ignore=(),
        junk_ids=(),
        gallery="cam < 8",
        trials={"times": 2},  # type: ignore[arg-type]
    )
    ids = np.repeat([1, 2, 3], 3)
    return {
        "source": se.Features(*(rng.standard_normal((9, 4)) for _ in range(2))),
        "query": {"id": ids, "cam": np.zeros(9, int)},
        "gallery": {"id": ids, "cam": np.arange(9)},
        "protocols": [protocol],
        "metrics": "CMC@1,mAP",
    }


def test_provenance_says_that_rows_are_given(problem: dict[str, Any], tmp_path: Path) -> None:
    found = se.evaluate_all(**problem, drawn=np.array([[0, 3, 6], [1, 4, 7], [2, 4, 5]]))["mine"]
    assert isinstance(found, se.Average)
    assert list(found.runs) == ["trial 1", "trial 2", "trial 3"]
    told = found.first.provenance["protocol"]["trials"]
    assert (told["draw"], told["times"]) == ("given", 3)
    assert "3 trials of items that are given" in str(found)
    found.save(tmp_path / "out")
    loaded = se.Average.load(tmp_path / "out")
    assert str(loaded) == str(found)
    drawn = se.evaluate_all(**problem)["mine"]
    with pytest.raises(InputError, match="differ in protocol"):
        se.average({"drawn": drawn.runs["trial 1"], "given": found.runs["trial 1"]})  # type: ignore[union-attr]


def test_results_of_other_rows_differ_in_their_gallery(problem: dict[str, Any]) -> None:
    """Rows 3 and 4 have the same labels but their camera, and are negatives of the others."""
    problem["gallery"]["cam"][3:5] = 7
    problem["query"] = {"id": np.full(9, 1), "cam": np.zeros(9, int)}
    one, other = (
        se.evaluate_all(**problem, drawn=[rows])["mine"].runs["trial 1"]  # type: ignore[union-attr]
        for rows in ([0, 3], [0, 4])
    )
    with pytest.raises(InputError, match="gallery rows are others"):
        se.compare(one, other)


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        ([[0, 3], [4, 1, 4]], "drawn, trial 2, names row 4 twice"),
        ([[0, 3], []], "drawn, trial 2, has no rows"),
        ([[0, 9]], "drawn, trial 1, has row 9; the 9 rows of gallery are numbered 0 to 8"),
        ([[0], [-1, 2]], "drawn, trial 2, has row -1"),
        ([[0], [5, 8]], "drawn, trial 2, has row 8, which protocol mine leaves out"),
        ([[0.0, 1.0]], "drawn, trial 1, is float64 .2,.; row numbers"),
        ([[True, False]], "drawn, trial 1, is bool"),
        ([0, 1], "drawn, trial 1, is int64 ..; row numbers"),
        ([], "the row numbers of each trial are needed"),
        ("rows.txt", "the row numbers of each trial are needed"),
    ],
)
def test_rows_that_can_be_of_no_trial(problem: dict[str, Any], drawn: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        se.evaluate_all(**problem, drawn=drawn)


def test_rows_need_a_protocol_with_trials(problem: dict[str, Any]) -> None:
    (protocol,) = problem["protocols"]
    none = replace(protocol, name="none", trials=None)
    with pytest.raises(OptionError, match="protocol none has no trials: leave it out, or add"):
        se.evaluate_all(**problem | {"protocols": [protocol, none]}, drawn=[[0]])
    given = replace(protocol, trials={"draw": "given"})
    with pytest.raises(OptionError, match="trials of protocol mine are not given: give drawn"):
        se.evaluate_all(**problem | {"protocols": [given]})
    found = se.evaluate_all(**problem | {"protocols": [given]}, drawn=[[0, 4]])
    assert found["mine"].runs["trial 1"].counts["gallery"] == 2  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="draw is 'some'; a whole number of at least 1"):
        replace(protocol, trials={"draw": "some"})


def test_all_items_that_are_drawn_leave_no_query(problem: dict[str, Any]) -> None:
    rest = se.Protocol("rest", (), queries="rest", trials={})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="trial 2 of protocol rest draws all 9 images"):
        se.evaluate_all(**problem | {"protocols": [rest]}, drawn=[[0], np.arange(9)])


def test_work_of_other_rows_is_not_resumed(
    problem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
    usual = passes_module.COUNT

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(passes_module, "COUNT", replace(usual, compute=fails))
    kept = {"checkpoint": tmp_path / "work", "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        se.evaluate_all(**problem, drawn=[[0, 3, 6]], **kept)
    monkeypatch.setattr(passes_module, "COUNT", usual)
    with pytest.raises(OutputError, match="labels"):
        se.evaluate_all(**problem, drawn=[[0, 3, 7]], **kept, resume=True)
    found = se.evaluate_all(**problem, drawn=[[6, 3, 0]], **kept, resume=True)
    assert not (tmp_path / "work").exists()
    again = se.evaluate_all(**problem, drawn=[[0, 3, 6]])
    assert found.runs["mine, trial 1"].statistics.equals(again.runs["mine, trial 1"].statistics)


def test_rows_in_files(tmp_path: Path) -> None:
    rows = np.array([[4, 0, 2], [1, 3, 5]])
    expected = [[0, 2, 4], [1, 3, 5]]
    np.save(tmp_path / "rows.npy", rows)
    scipy.io.savemat(tmp_path / "rows.mat", {"drawn": rows + 1.0})
    (tmp_path / "rows.txt").write_text("5 1 3\n2,4, 6\n\n")
    for name, listed_as in (
        ("rows.npy", "0-based"),
        ("rows.mat::drawn", "1-based"),
        ("rows.txt", "1-based"),
    ):
        found = se.read_drawn(tmp_path / name, listed_as=listed_as)  # type: ignore[arg-type]
        assert [own.tolist() for own in found] == expected
    (tmp_path / "ragged.txt").write_text("0 3\n2\n")
    found = se.read_drawn(tmp_path / "ragged.txt", listed_as="0-based")
    assert [own.tolist() for own in found] == [[0, 3], [2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 3\n2\n", "trial 1, has row 0, and rows are said to be 1-based"),
        ("1 3\n\n2", "trial 2, has no rows"),
        ("1 3 1\n", "trial 1, names row 1 twice"),
        ("1 x\n", "line 1, has 'x'; row numbers are needed"),
        ("1 -2\n", "line 1, has '-2'"),
        ("", "the row numbers of each trial are needed"),
    ],
)
def test_files_that_can_be_of_no_trials(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        se.read_drawn(tmp_path / "rows.txt", listed_as="1-based")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.arange(3))
    np.save(tmp_path / "half.npy", np.array([[0.5, 1]]))
    for name, words in (
        ("one.npy", "has shape .3,.; row numbers, .n. for each trial, are needed"),
        ("half.npy", "trial 1, is float64"),
        ("none.txt", "can't be read"),
        ("none.npy", "none.npy"),
    ):
        with pytest.raises(InputError, match=words):
            se.read_drawn(tmp_path / name, listed_as="0-based")
    with pytest.raises(OptionError, match=r"what the row numbers in one\.npy count from"):
        se.read_drawn("one.npy")


def without(name: str) -> Callable[[Labels], Labels]:
    return lambda labels: {key: own for key, own in labels.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("cam"), "has none in column cam: integers are needed"),
        (lambda labels: labels | {"cam": labels["cam"].astype(str)}, "integers are needed"),
        (lambda labels: {key: own[1:] for key, own in labels.items()}, "has permutations of"),
        (lambda labels: labels | {"id": labels["id"] + 100}, "has permutations of 0 images"),
        (lambda labels: {key: own[:0] for key, own in labels.items()}, "no items to draw from"),
    ],
)
def test_permutations_are_of_the_images_of_the_gallery(
    permutations: Path, change: Callable[[Labels], Labels], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        se.read_drawn(permutations, shots=1, gallery=change(data("sysu")[2]))


def test_permutations_that_are_none(tmp_path: Path) -> None:
    gallery = {"id": [1, 1, 2], "cam": [1, 1, 1]}
    one, path = np.array([[1]]), tmp_path / "p.mat"
    for stored, words in (
        ({(1, 1): np.array([[1, 1]]), (1, 2): one}, "identity 1, has no permutations of .* 1 to 2"),
        (
            {(1, 1): np.array([[2, 1]]), (1, 2): np.array([[1], [1]])},
            "has 1 permutations of some images, and 2 of others",
        ),
    ):
        write_permutations(path, stored)
        with pytest.raises(InputError, match=words):
            se.read_drawn(path, shots=1, gallery=gallery)
    scipy.io.savemat(path, {"rand_perm_cam": np.eye(2)})
    with pytest.raises(InputError, match="no cells of cells"):
        se.read_drawn(path, shots=1, gallery=gallery)
    scipy.io.savemat(path, {"other": np.eye(2)})
    with pytest.raises(InputError, match="has no variable rand_perm_cam"):
        se.read_drawn(path, shots=1, gallery=gallery)


def test_shots_need_labels(permutations: Path) -> None:
    gallery = data("sysu")[2]
    with pytest.raises(OptionError, match="give the labels of the gallery"):
        se.read_drawn(permutations, shots=1)
    with pytest.raises(OptionError, match="shots is 0; a whole number of at least 1"):
        se.read_drawn(permutations, shots=0, gallery=gallery)
    with pytest.raises(OptionError, match="has no row numbers: leave it out"):
        se.read_drawn(permutations, shots=1, gallery=gallery, listed_as="1-based")
    with pytest.raises(InputError, match=r"rand_perm_cam|MATLAB class cell"):
        se.read_drawn(permutations, listed_as="1-based")


def test_shots_are_drawn_from_what_the_protocol_selects(permutations: Path) -> None:
    gallery = data("sysu")[2]
    every = se.read_drawn(permutations, shots=1, gallery=gallery)
    for protocol, cams in (("sysu-mm01/all", (1, 2, 4, 5)), ("sysu-mm01/indoor", (1, 2))):
        own = se.read_drawn(permutations, shots=1, gallery=gallery, protocol=protocol)
        for rows, of_all in zip(own, every, strict=True):
            assert np.array_equal(rows, of_all[np.isin(gallery["cam"][of_all], cams)])

"""Figures: files are written with no display, and hold the data of the curves."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from spread import spread
from support.cli import main
from support.report import CAMERAS, COLOURS, CURVES, figure_bytes, plot

import streameval as se

HOSTILE = "_<script>alert(1)</script> $x$ ../../etc \x1b[31m 😀" + "x" * 300


def evaluation(seed: int) -> se.Evaluation:
    rng = np.random.default_rng(seed)
    query, gallery = rng.integers(0, 12, 40), rng.integers(0, 8, 90)
    nearer = np.where(query[:, None] == gallery, 0.5, 1.0)
    return se.evaluate(
        se.Distances(nearer * rng.random((40, 90))),
        query=se.Labels(id=query, cam=rng.integers(0, 3, 40)),
        gallery=se.Labels(id=gallery, cam=rng.integers(0, 3, 90)),
        metrics="all",
        threads=1,
    )


@pytest.fixture(scope="module")
def results() -> dict[str, se.Evaluation]:
    return {"one": evaluation(0), "two": evaluation(1)}


def svg_of(results: dict[str, se.Evaluation], curve: str) -> ET.Element:
    return svg_of_figure(plot(results, curve))


def svg_of_figure(figure: Any) -> ET.Element:
    return ET.fromstring(figure_bytes(figure, "figure.svg"))


def points(svg: ET.Element, gid: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of the path of a group, in the units of the page."""
    (group,) = [one for one in svg.iter() if one.get("id") == gid]
    path = next(one for one in group.iter() if one.tag.endswith("path"))  # before its markers
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", path.get("d", ""))
    found = np.array(numbers, float).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def check_is_scaled(drawn: np.ndarray, values: np.ndarray) -> None:
    """Check that one is the other in other units."""
    assert drawn.shape == values.shape
    slope, start = np.polyfit(values, drawn, 1)
    assert slope != 0
    np.testing.assert_allclose(start + slope * values, drawn, atol=1e-3)


@pytest.mark.parametrize("curve", ["mReP", "mRP", "mVP", "mFR"])
def test_curves_over_tau(results: dict[str, se.Evaluation], curve: str) -> None:
    svg = svg_of(results, curve)
    for at, result in enumerate(results.values()):
        x, y = points(svg, f"curve-{at}")
        check_is_scaled(x, result.curves["tau"])
        check_is_scaled(y, result.curves[curve])
    text = " ".join("".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text"))
    assert "one" in text
    assert "two" in text
    assert curve in text
    marked = {"mReP": "tau_max", "mFR": "tau_nz"}.get(curve)
    if marked:
        assert f"{marked.replace('tau', 'τ')} = {results['one'][marked]:.2f}" in text


def test_steps_and_other_axes(results: dict[str, se.Evaluation]) -> None:
    one = results["one"]
    x, y = points(svg_of(results, "CMC"), "curve-0")
    check_is_scaled(x[::2], np.arange(1.0, len(one.curves["CMC"]) + 1))
    check_is_scaled(y[::2], one.curves["CMC"])
    x, y = points(svg_of(results, "precision-recall"), "curve-1")
    check_is_scaled(x, results["two"].curves["recall"])
    check_is_scaled(y, results["two"].curves["mPrecision"])
    x, y = points(svg_of(results, "DIR-FAR"), "curve-0")
    seen = one.curves["FAR"] > 0
    check_is_scaled(x[::2], np.log(one.curves["FAR"][seen]))
    assert "mathdefault" not in ET.tostring(svg_of(results, "DIR-FAR"), encoding="unicode")
    check_is_scaled(y[::2], one.curves["DIR@1"][seen])


def test_densities_of_pairs_have_area_one(results: dict[str, se.Evaluation]) -> None:
    figure = plot(results, "pairs")
    for patch in figure.axes[0].patches:
        density, edges, _ = patch.get_data()
        outside = 0.05  # the extremes of minmax are edges: a pair may lie at the lowest one
        assert 1 - outside < np.sum(density * np.diff(edges)) <= 1 + 1e-9
    assert len(figure.axes[0].patches) == 4


def test_a_heat_map_has_every_cell(results: dict[str, se.Evaluation]) -> None:
    one = {"one": results["one"]}
    matrix = results["one"].camera_matrix("mAP").values
    figure = plot(one, CAMERAS, metric="mAP")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert texts == {f"{100 * value:.1f}" for value in matrix[~np.isnan(matrix)]}
    with pytest.raises(se.errors.OptionError, match="of one result"):
        plot(results, CAMERAS)
    with pytest.raises(se.errors.OptionError, match="mAPP"):
        plot(one, CAMERAS, metric="mAPP")


MAGIC = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize(("curve", "kind"), spread([*CURVES, CAMERAS], MAGIC, of=3))
def test_every_type_of_file(results: dict[str, se.Evaluation], curve: str, kind: str) -> None:
    shown = {"one": results["one"]} if curve == CAMERAS else results
    content = figure_bytes(plot(shown, curve), f"figure.{kind}")
    assert content.startswith(MAGIC[kind])
    if kind == "svg":
        assert content == figure_bytes(plot(shown, curve), "figure.svg")


def test_hostile_names_are_text() -> None:
    content = figure_bytes(plot({HOSTILE: evaluation(0)}, "CMC"), "figure.svg").decode()
    assert "<script>" not in content
    assert "\x1b" not in content
    assert len(ET.fromstring(content)) > 0
    for kind in ("png", "pdf"):
        assert figure_bytes(plot({HOSTILE: evaluation(0)}, "CMC"), f"figure.{kind}")


def test_lines_are_told_apart() -> None:
    many = {f"run {at}": evaluation(0) for at in range(len(COLOURS))}
    lines = plot(many, "CMC").axes[0].lines
    assert len({line.get_color() for line in lines}) == len(COLOURS)
    assert len({line.get_linestyle() for line in lines}) == 4


def test_what_a_result_does_not_hold(results: dict[str, se.Evaluation]) -> None:
    bare = {"bare": results["one"].with_options(metrics=("mAP",))}
    for curve, words in (("pairs", "EER"), ("mReP", "mReP_max"), ("DIR-FAR", "DIR@1")):
        with pytest.raises(se.InputError, match=words):
            plot(bare, curve)
    with pytest.raises(se.errors.OptionError, match="known: mReP"):
        plot(bare, "nonsense")


def lists(k: int, positives: range) -> se.Evaluation:
    """Evaluate lists of the first k of 40 items."""
    index = np.tile(np.arange(k), (6, 1))
    gallery = [0 if item in positives else 1 for item in range(40)]
    return se.evaluate(
        se.Neighbors(index, np.sort(np.random.default_rng(0).random((6, k)))),
        query={"id": [0, 0, 0, 0, 90, 91]},
        gallery={"id": gallery},
        protocol="no-camera",
        range=(0, 1),
        threads=1,
    )


@pytest.mark.parametrize("curve", ["CMC", "mReP", "mRP", "mVP", "precision-recall"])
def test_a_curve_between_bounds_is_not_drawn(curve: str) -> None:
    assert lists(5, range(3)).plot("precision-recall").axes[0].lines
    words = f"this run holds only bounds of the curve {curve}, which lists of k = 5 leave open: "
    with pytest.raises(se.InputError, match=f"{words}evaluate with a larger k"):
        lists(5, range(7, 12)).plot(curve)


@pytest.mark.parametrize("curve", ["CMC", "mReP", "precision-recall", "DIR-FAR", "camera-pairs"])
def test_a_result_without_positives_has_no_curves_of_them(curve: str) -> None:
    with pytest.warns(se.StreamevalWarning, match="no query has a positive"):
        result = se.evaluate(
            se.Distances(np.random.default_rng(0).random((3, 5))),
            query={"id": [7, 8, 9], "cam": [1, 1, 2]},
            gallery={"id": range(5), "cam": [3] * 5},
            threads=1,
        )
    with pytest.raises(se.InputError, match="this run has no"):
        result.plot(curve)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plot", *arguments])


def test_the_command(
    results: dict[str, se.Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, result in results.items():
        result.save(name)
    assert run("one", "two", "-o", "fig.pdf").exit_code == 0
    assert Path("fig.pdf").read_bytes().startswith(b"%PDF")
    assert run("one", "two", "--label", "ours", "--label", "theirs", "-o", "fig.svg").exit_code == 0
    assert "theirs" in Path("fig.svg").read_text()
    for arguments, words in (
        (("one", "-o", "fig.pdf"), "--overwrite"),
        (("one", "-o", "fig.bmp"), "png, svg, pdf"),
        (("-o", "new.pdf"), "no result"),
        (("one", "one", "-o", "new.pdf"), "--label"),
        (("one", "--label", "a", "--label", "b", "-o", "new.pdf"), "one each"),
        (("one", "--curve", "nonsense", "-o", "new.pdf"), "known: mReP"),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, refused.stdout) == (2, ""), arguments
        assert words in refused.stderr
    assert not Path("new.pdf").exists()

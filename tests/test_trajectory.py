"""The trajectory of a ledger as a figure: every snapshot is where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.cli import main
from support.report import figure_bytes, plot_trajectories
from test_ledger import create, filled, folder
from test_plots import HOSTILE, check_is_scaled, points, svg_of_figure

import streameval as se

__all__ = ["folder"]


@pytest.fixture
def ledgers(folder: Path) -> dict[str, se.Ledger]:
    filled("L").forget([3])  # its last line goes back: the gallery is smaller
    filled("M", ap="trapezoid", ties="optimistic")
    return {name: se.Ledger(name) for name in ("L", "M")}


def test_every_snapshot_is_a_point(ledgers: dict[str, se.Ledger]) -> None:
    trajectories: dict[str, Any] = {name: one.trajectory for name, one in ledgers.items()}
    metrics = ("mAP", "CMC@1")
    figure = plot_trajectories({name: one.head() for name, one in ledgers.items()}, metrics)
    svg = svg_of_figure(figure)
    at = 0
    labels = []
    for name, trajectory in trajectories.items():
        for metric in metrics:
            known = [one for one in trajectory if one.metrics[metric] is not None]
            assert len(known) == len(trajectory) - 1  # all but that of the empty gallery
            x, y = points(svg, f"curve-{at}")
            check_is_scaled(x, np.array([float(one.gallery) for one in known]))
            check_is_scaled(y, np.array([one.metrics[metric] for one in known], float))
            labels.append(f"{name}: {metric}")
            at += 1
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == labels
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}
    assert len(looks) == len(labels)


@pytest.mark.usefixtures("folder")
def test_every_metric_is_shown_once() -> None:
    filled("N", metrics=("CMC@5", "mAP"))
    shown = CliRunner().invoke(main, ["ledger", "show", "N"]).stdout
    (heads,) = [line.split() for line in shown.splitlines() if line.startswith("snapshot")]
    assert heads[-2:] == ["mAP", "CMC@5"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ledger", "plot", *arguments])


@pytest.mark.usefixtures("ledgers")
def test_the_command() -> None:
    for kind, magic in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        assert run("L", "-o", f"one.{kind}").exit_code == 0
        assert Path(f"one.{kind}").read_bytes().startswith(magic)
    both = run("L", "M", "--label", "a", "--label", "b", "--metric", "CMC@1", "-o", "two.svg")
    assert both.exit_code == 0
    assert ">CMC@1<" in Path("two.svg").read_text()
    create("empty")
    for arguments, words in (
        (("-o", "new.svg"), "no ledger to plot"),
        (("L", "-o", "one.svg"), "--overwrite"),
        (("L", "-o", "new.bmp"), "png, svg, pdf"),
        (("L", "L", "-o", "new.svg"), "--label"),
        (("L", "--metric", "mAPP", "-o", "new.svg"), "'mAPP'; there are CMC@1"),
        (("empty", "-o", "new.svg"), "mAP has no value in any snapshot of empty"),
        (("nowhere", "-o", "new.svg"), "nowhere"),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, refused.stdout) == (2, ""), arguments
        assert words in refused.stderr
    assert not Path("new.svg").exists()


@pytest.mark.usefixtures("folder")
def test_hostile_names_are_text() -> None:
    head = filled("L").head()
    figure = plot_trajectories({HOSTILE: head, "L": head}, ["mAP"])
    content = figure_bytes(figure, "figure.svg").decode()
    assert "<script>" not in content
    assert "\x1b" not in content

"""Published numbers: the GOM paper's Tables 2 and 3, and a real CUHK03 evaluation."""

from __future__ import annotations

import csv
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import oracle_metrics, oracle_statistics, oracle_thresholds
from spread import spread
from support.metrics import Metrics, compute_metrics, gom_scalars

import streameval as se
from streameval import MetricOptions, StreamevalWarning

DATA = Path(__file__).parents[2] / "shared" / "data"

# The lists of Table 2: five items each; at which places the positives are, and how many items
# are within τ1 and τ2.
TABLE_2 = {
    "I": ((1, 2, 3), 2, 3),
    "II": ((1, 2, 3), 0, 1),
    "III": ((1, 3, 4), 1, 4),
    "IV": ((1, 2, 4), 1, 4),
    "V": ((), 0, 2),
    "VI": ((), 0, 1),
}
COLUMNS = "CMC@1 AP INP FAR_1 FAR_2 RP_1 VP_1 ReP_1 FR_1 RP_2 VP_2 ReP_2 FR_2"
# By hand, at no threshold, at τ1 and at τ2: a dash is undefined.
BY_HAND = {
    "I": "1 1 1 - -   1 2/3 sqrt(2/3) -   1 1 1 -",
    "II": "1 1 1 - -   0 0 0 -   1 1/3 sqrt(1/3) -",
    "III": "1 29/36 3/4 - -   1 1/3 sqrt(1/3) -   29/36 3/4 sqrt(29/48) -",
    "IV": "1 11/12 3/4 - -   1 1/3 sqrt(1/3) -   11/12 3/4 sqrt(11/16) -",
    "V": "- - - 0 1   - - - 0   - - - 2/5",
    "VI": "- - - 0 1   - - - 0   - - - 1/5",
}
# As printed; a question mark where our copy is not legible.
PRINTED = {
    "I": "1 1 1 - -   1 0.67 0.82 -   1 1 1 -",
    "II": "1 1 1 - -   0 0 0 -   1 0.33 0.57 -",
    "III": "1 0.81 ? - -   1 0.33 0.57 -   0.81 0.75 ? -",
    "IV": "1 0.92 0.75 - -   1 0.33 0.57 -   0.92 0.75 0.83 -",
    "V": "- - - 0 1   - - - 0   - - - 0.4",
    "VI": "- - - ? ?   - - - 0   - - - 0.2",
}


def number(text: str) -> float:
    """Return the value of 2/3, sqrt(2/3) or 0.67."""
    inner = text.removeprefix("sqrt(").removesuffix(")")
    return float(Fraction(inner)) ** (0.5 if inner != text else 1)


def evaluate(stats: Any, options: MetricOptions) -> Metrics:
    """Compute metrics where one kind of query is absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        return compute_metrics(stats, options)


def table_2_row(name: str, vp: Any) -> list[float]:
    positives, within_1, within_2 = TABLE_2[name]
    distances = np.array(
        [[1.0] * within_1 + [2.0] * (within_2 - within_1) + [3.0] * (5 - within_2)]
    )
    distances += np.arange(5) / 100
    thresholds = np.array([1.5, 2.5])
    gallery = np.array([1 if k in positives else 2 for k in range(1, 6)])
    stats = oracle_statistics(distances, np.array([1]), gallery, thresholds=thresholds)
    metrics = evaluate(stats, MetricOptions(vp=vp, false_rate_budget=5))
    curves = metrics.curves
    far = curves["FAR"]
    if not positives:  # FAR(τ): just below the next distance at which it changes
        far = far[np.searchsorted(curves["ROC_tau"], thresholds, side="right")]
    row = [metrics.scalars["CMC@1"], metrics.per_query["AP"][0], metrics.per_query["INP"][0]]
    row += [far[0], far[-1]]
    for t in range(2):
        row += [curves["mRP"][t], curves["mVP"][t], curves["mReP"][t], curves["mFR"][t]]
    return row


@pytest.mark.parametrize("vp", ["equation", "reference"])
@pytest.mark.parametrize("name", TABLE_2)
def test_table_2(name: str, vp: Any) -> None:
    row = table_2_row(name, vp)
    texts = (COLUMNS.split(), row, BY_HAND[name].split(), PRINTED[name].split())
    for column, value, exact, printed in zip(*texts, strict=True):
        if exact == "-":
            assert np.isnan(value), column
        else:
            assert value == pytest.approx(number(exact), abs=1e-15), column
        if printed not in "-?":
            # Two decimals: most are rounded, 0.577 is cut to 0.57.
            assert abs(value - float(printed)) < 0.008, column


def table_3() -> list[dict[str, str]]:
    path = DATA / "gom-curves" / "table3-market1501.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.skipif(not table_3(), reason=f"no published curves at {DATA / 'gom-curves'}")
def test_table_3_follows_from_the_published_curves() -> None:
    from scipy.io import loadmat

    methods = table_3()
    assert len(methods) == 17
    for method in methods:
        file, row = loadmat(DATA / "gom-curves" / method["file"]), int(method["row"])
        curves = {name: file[f"{name}_list"][row] for name in ("mRP", "mVP", "mReP", "mFR")}
        scalars = gom_scalars(np.arange(101) / 100, curves["mVP"], curves["mReP"], curves["mFR"])
        for name in ("mVP_max", "mReP_max", "MREP", "MFR"):
            assert f"{100 * scalars[name]:.1f}" == method[name], (method["method"], name)
        assert f"{scalars['tau_max']:.2f}" == method["tau_max"], method["method"]


@pytest.fixture(scope="module")
def cuhk03() -> dict[str, Any]:
    folder = DATA / "cuhk03-detected-100q"
    if not folder.exists():
        pytest.skip(f"no CUHK03 distances at {folder}")
    names = ("query_id", "gallery_id", "query_cam", "gallery_cam")
    problem: dict[str, Any] = {name: np.load(folder / f"{name}.npy") for name in names}
    return {"distances": np.load(folder / "distances.npy"), **problem}


def test_cuhk03_published_numbers(cuhk03: dict[str, Any]) -> None:
    published = json.loads((DATA / "cuhk03-detected-100q" / "published.json").read_text())
    stats = oracle_statistics(**cuhk03)
    step = evaluate(stats, MetricOptions())
    assert round(step.scalars["mAP"], 4) == published["mAP_step"]
    np.testing.assert_array_equal(np.round(step.curves["CMC"][:99], 2), published["CMC"])
    trapezoid = evaluate(stats, MetricOptions(ap="trapezoid"))
    assert round(trapezoid.scalars["mAP"], 6) == published["mAP_trapezoid"]
    assert step.counts["ties"] == 2


def test_cuhk03_under_other_readings(cuhk03: dict[str, Any]) -> None:
    def cmc(cmc: Any = "first-match", **ignore: bool) -> list[float]:
        options = MetricOptions(cmc=cmc, metrics=("CMC@1", "CMC@5", "CMC@10", "CMC@20"))
        metrics = evaluate(oracle_statistics(**cuhk03, **ignore), options)
        return [round(value, 5) for value in metrics.scalars.values()]

    assert cmc(cmc="all-shots") == [0.50083, 0.70917, 0.79917, 0.87833]
    assert cmc(same_camera=True) == [0.80, 0.94, 0.97, 0.98]


def test_cuhk03_under_the_authors_code_of_gom(cuhk03: dict[str, Any]) -> None:
    # GOM.py of YuanXinCherry/Person-reID-Evaluation 08fa6959: norm_distance, evaluate_closed.
    sides = {
        side: se.Labels(cuhk03[f"{side}_id"], cuhk03[f"{side}_cam"])
        for side in ("query", "gallery")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        result = se.evaluate(se.Distances(cuhk03["distances"]), **sides, preset="gom-code")
    assert result.range == {"mode": "minmax-all", "low": 0.17826, "high": 1.2798}
    found = [round(result[name], 5) for name in ("mVP_max", "mReP_max", "tau_max", "MREP")]
    assert found == [0.54550, 0.60109, 0.50, 0.40290]


@pytest.mark.parametrize(
    ("ties", "vp"),
    spread(["pessimistic", "optimistic", "stable", "expected"], ["reference", "equation"]),
)
def test_cuhk03_equals_the_oracle(cuhk03: dict[str, Any], ties: Any, vp: Any) -> None:
    lo, hi = float(cuhk03["distances"].min()), float(cuhk03["distances"].max())
    thresholds = oracle_thresholds(cuhk03["distances"], lo, hi)
    metrics = evaluate(
        oracle_statistics(**cuhk03, thresholds=thresholds), MetricOptions(ties, vp=vp)
    )
    tolerance = 1e-14 if ties == "expected" else 0
    scalars, curves, per_query = oracle_metrics(**cuhk03, ties=ties, vp=vp, lo=lo, hi=hi, ranks=100)
    for mine, theirs in (
        (metrics.scalars, scalars),
        (metrics.curves, curves),
        (metrics.per_query, per_query),
    ):
        for name, value in theirs.items():
            np.testing.assert_allclose(mine[name], value, 0, tolerance, err_msg=name)

"""Against peers that install from the package index, on the same lists.

Extra ``peers`` is ranx, and takes half a minute; ``peers-torch`` the others, with torch. What is
not installed is skipped.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from oracle import oracle_statistics
from problems import untied
from support.protocols import DIFFERENCES, EQUIVALENTS
from test_metrics import quietly
from test_metrics_sklearn import lists

from streameval import MetricOptions

pytestmark = pytest.mark.peers


def peer(name: str) -> ModuleType:
    """Import a peer, or skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            name, reason=f"{name} is not installed: extras peers, peers-torch"
        )


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    """Return a gallery of 60 items of 6 identities, without ties."""
    rng = np.random.default_rng(7)
    drawn = {
        "distances": rng.random((25, 60)),
        "query_id": rng.integers(0, 6, 25),
        "gallery_id": rng.integers(0, 6, 60),
    }
    return untied(drawn)


def mine(problem: dict[str, Any], *names: str, **options: Any) -> dict[str, float]:
    return quietly(oracle_statistics(**problem), MetricOptions(metrics=names, **options)).scalars


@pytest.mark.filterwarnings("ignore")
def test_ranx(problem: dict[str, Any]) -> None:
    ranx = peer("ranx")
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for at, (match, score) in enumerate(lists(problem)):
        qrels[f"q{at}"] = {f"d{k}": 1 for k in np.flatnonzero(match)}
        run[f"q{at}"] = {f"d{k}": float(value) for k, value in enumerate(score)}
    names = EQUIVALENTS["ranx"]
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), list(names))
    values = mine(problem, *names.values())
    for name, own in names.items():
        assert values[own] == pytest.approx(theirs[name], abs=1e-12), name


def test_torchmetrics(problem: dict[str, Any]) -> None:
    peer("torchmetrics")
    from torch import tensor
    from torchmetrics.functional import retrieval

    names = EQUIVALENTS["torchmetrics"]
    values = mine(problem, *names.values())

    def mean(called: str, offset: float) -> float:
        """Return theirs, of scores whose least is `offset`."""
        function, _, top = called.rstrip(")").partition("(top_k=")
        options = {"top_k": int(top)} if top else {}
        each = [
            getattr(retrieval, function)(
                tensor(score - score.min() + offset), tensor(match), **options
            )
            for match, score in lists(problem)
        ]
        return float(np.mean(each))

    for theirs, name in names.items():
        assert values[name] == pytest.approx(mean(theirs, 1.0), abs=1e-6), name  # float32
        negative = mean(theirs, -1e6)
        if theirs in DIFFERENCES["torchmetrics"]:
            assert negative == 0, name
        else:
            assert values[name] == pytest.approx(negative, abs=1e-6), name


@pytest.mark.filterwarnings("ignore")
def test_pytorch_metric_learning(problem: dict[str, Any]) -> None:
    peer("pytorch_metric_learning")
    peer("faiss")
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from torch import tensor

    names = EQUIVALENTS["pytorch-metric-learning"]
    rng = np.random.default_rng(8)
    query, gallery = (
        rng.standard_normal((len(problem[f"{side}_id"]), 8)).astype(np.float32)
        for side in ("query", "gallery")
    )
    calculator = AccuracyCalculator(include=tuple(names), k=len(gallery))
    theirs = calculator.get_accuracy(
        *(tensor(one) for one in (query, problem["query_id"], gallery, problem["gallery_id"]))
    )
    apart = query[:, None].astype(np.float64) - gallery
    distances = np.sqrt((apart**2).sum(axis=2))
    values = mine({**problem, "distances": distances}, *names.values())
    for name, own in names.items():
        rounding = 1e-6 if own == "MRR" else 1e-12  # its MRR is in float32
        assert values[own] == pytest.approx(theirs[name], abs=rounding), name

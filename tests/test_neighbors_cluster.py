"""Lists of neighbours on a cluster: searched by workers that open the index, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import HERE, cluster, labels, write_inputs
from distributed import Client
from spread import SLOW

import streameval as se


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(HERE, id="threads"), pytest.param({}, id="processes", marks=SLOW)],
)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with cluster(2, **request.param) as (_, one):
        yield one


@pytest.mark.parametrize("index", ["Flat", "IVF8,Flat", "stored"])
def test_lists_equal_those_of_threads(folder: Path, client: Client, index: str) -> None:
    features = se.Features(folder / "q.npy", folder / "g.npy")
    sides = labels(folder)
    if index == "stored":
        import numpy as np

        lists = np.tile(np.arange(3000), (120, 1))
        source = se.Neighbors(lists, features=features)
    elif index == "Flat":
        source = se.Neighbors(features=features, index=index, k=60, tighten=True)
    else:
        kept = folder / "kept.faiss"
        se.evaluate(se.Neighbors(features=features, index=index, k=5, save_index=kept), **sides)
        source = se.Neighbors(
            features=features, index=kept, k=60, search="nprobe=2", canonical=True
        )
    expected = se.evaluate(source, **sides)
    found = se.evaluate(source, **sides, client=client)
    assert found.statistics.equals(expected.statistics)
    assert found.summary().get("bounds") == expected.summary().get("bounds")
    assert found.provenance["plan"]["workers"] == 2

"""Errors of public calls: one exception, whose traceback ends at the call, whatever led to it."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import streameval as se

PACKAGE = Path(se.__file__).parent
IDS = np.arange(6) % 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("not.npy").write_text("not an array")
    Path("not.csv").write_text("name\n3\n")
    Path("not.toml").write_text("name = [")
    Path("gone").mkdir()
    Path("gone/summary.json").write_text("{")


@pytest.fixture(scope="module")
def result() -> se.Evaluation:
    labels = se.Labels(id=IDS, cam=np.arange(6) % 2)
    distances = se.Distances(np.arange(36.0).reshape(6, 6))
    return se.evaluate(distances, query=labels, gallery=labels, metrics="CMC@1,mAP")


def evaluate(**given: Any) -> se.Evaluation:
    labels = {"query": se.Labels(id=IDS), "gallery": se.Labels(id=IDS), "protocol": "no-camera"}
    source = given.pop("source", None) or se.Distances(np.arange(36.0).reshape(6, 6))
    return se.evaluate(source, **labels | given)


def no_number() -> se.Evaluation:
    distances = np.ones((6, 6))
    distances[2, 3] = np.nan
    return evaluate(source=se.Distances(distances))


def failing(query: slice, gallery: slice) -> np.ndarray:
    raise ZeroDivisionError("of the user")


def ledger() -> se.Ledger:
    np.save("query.npy", np.eye(6, 4))
    return se.Ledger.create("L", query="query.npy", query_labels=se.Labels(id=IDS))


CALLS: dict[str, Callable[[], object]] = {
    "Features, of a file that is gone": lambda: se.Features("gone.npy", "gone.npy"),
    "Features, of no array": lambda: se.Features("not.npy", "not.npy"),
    "Features, of an unknown metric": lambda: se.Features(np.eye(3), np.eye(3), "hamming"),
    "Distances": lambda: se.Distances("not.npy"),
    "Computed": lambda: se.Computed(3, (3, 4)),  # type: ignore[arg-type]
    "Neighbors": lambda: se.Neighbors("not.npy"),
    "Labels": lambda: se.Labels(id=[[1, 2], [3, 4]]),
    "ListedPairs": lambda: se.ListedPairs.of(["a"]),
    "MetricOptions": lambda: se.MetricOptions(ties="first"),  # type: ignore[arg-type]
    "Protocol": lambda: se.Protocol("mine", ignore=(("cam",), ())),
    "read_labels": lambda: se.read_labels("not.npy"),
    "read_label_table": lambda: se.read_label_table("not.csv"),
    "read_label_tables": lambda: se.read_label_tables("gone.csv", "gone.csv"),
    "read_protocol": lambda: se.read_protocol("not.toml"),
    "read_listed_pairs": lambda: se.read_listed_pairs(
        "not.csv", queries=3, gallery=se.Labels(id=IDS)
    ),
    "compare": lambda: se.compare("gone", "gone"),
    "average": lambda: se.average(["gone"]),
    "Average.load": lambda: se.Average.load("gone"),
    "compare_index": lambda: se.compare_index(
        se.Features(np.eye(6), np.eye(6)), ["Flat,"], k=2, query=se.Labels(id=IDS),
        gallery=se.Labels(id=IDS), protocol="no-camera",
    ),
    "Ledger": lambda: se.Ledger("gone").head(),
    "Ledger.create": lambda: se.Ledger.create("new", query="not.npy", query_labels=se.Labels(IDS)),
    "Ledger.append": lambda: ledger().append("not.npy", se.Labels(id=IDS)),
    "Ledger.remove": lambda: ledger().remove("monday"),
    "Evaluation.load": lambda: se.Evaluation.load("gone"),
    "evaluate, an option": lambda: evaluate(progress=3),
    "evaluate, the budget": lambda: evaluate(memory=1),
    "evaluate, distances": no_number,
}  # fmt: skip
METHODS: dict[str, Callable[[se.Evaluation], object]] = {
    "save": lambda result: result.save("not.npy"),
    "plot": lambda result: result.plot("cmc"),
    "plot, of another metric": lambda result: result.plot("camera-pairs", metric="nothing"),
    "plot, of a curve that is not there": lambda result: result.plot("DIR-FAR"),
    "to_pandas": lambda result: result.to_pandas("rows"),  # type: ignore[arg-type]
    "with_options": lambda result: result.with_options({"tie": "stable"}),
    "with_options, metrics": lambda result: result.with_options(metrics="EER"),
    "grouped": lambda result: result.grouped("weather"),
    "confidence": lambda result: result.confidence(2.0),
    "precision_recall": lambda result: result.precision_recall(99),
}


def shown_of(call: Callable[[], object]) -> se.StreamevalError:
    """Return the error of a call: it is shown alone, without a frame of the package."""
    with pytest.raises(se.StreamevalError) as caught:
        call()
    error = caught.value
    text = "".join(traceback.format_exception(error))
    assert text.count("Traceback (most recent call last)") == 1
    assert str(error) in text
    frames = [Path(one.filename) for one in traceback.extract_tb(error.__traceback__)]
    assert frames[0] == Path(__file__)
    assert not [one for one in frames if PACKAGE in one.parents]
    return error


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("folder")
def test_an_error_is_shown_alone(name: str) -> None:
    if "plot" in name:
        pytest.importorskip("matplotlib")
    shown_of(CALLS[name])


@pytest.mark.parametrize("name", METHODS)
def test_an_error_of_a_result_is_shown_alone(name: str, result: se.Evaluation) -> None:
    if "plot" in name:
        pytest.importorskip("matplotlib")
    shown_of(lambda: METHODS[name](result))


def test_what_led_to_an_error_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="streameval"):
        error = shown_of(lambda: se.Evaluation.load("gone"))
    assert isinstance(error.__context__, ValueError)  # of JSON
    assert error.__context__.__traceback__ is not None
    assert "JSONDecodeError" in caplog.text
    assert "read_summary" in caplog.text  # a frame of the package


def test_an_error_in_a_function_of_the_user_is_shown() -> None:
    with pytest.raises(se.TaskError, match="ZeroDivisionError: of the user") as caught:
        evaluate(source=se.Computed(failing, (6, 6)))
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback (most recent call last)") == 2
    assert f'File "{__file__}", line' in text.split("direct cause")[0]


def test_an_error_in_a_graph_of_the_user_is_shown() -> None:
    def failing_block(block: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("of the user")

    chunks = da.ones((6, 6)).map_blocks(failing_block, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(se.InputError, match="ZeroDivisionError: of the user") as caught:
        evaluate(source=se.Distances(chunks))
    text = "".join(traceback.format_exception(caught.value))
    assert "in failing_block" in text.split("direct cause")[0]


def is_entry(member: Any) -> bool:
    """Return whether errors of a function end at the call of it."""
    call = getattr(member, "__func__", member)
    return "contextlib" in str(call.__code__.co_filename)


@pytest.mark.parametrize("name", se.__all__)
def test_every_public_name_is_an_entry_point(name: str) -> None:
    given = getattr(se, name)
    if inspect.isfunction(given):
        assert is_entry(given)
    elif name in ("Evaluation", "Ledger"):
        for own in (one for kind in given.__mro__[:-1] for one in vars(kind).items()):
            if not own[0].startswith("_") and isinstance(own[1], classmethod | type(is_entry)):
                assert is_entry(own[1]), own[0]
    elif inspect.isclass(given) and not issubclass(given, BaseException | se.Progress):
        made = (vars(given).get(one) for one in ("__init__", "__post_init__", "of"))
        assert any(is_entry(one) for one in made if one) or name == "RankStatistics"


def strangers() -> se.Evaluation:
    with pytest.warns(se.StreamevalWarning):
        return evaluate(query=se.Labels(id=IDS + 9))


WARNINGS: dict[str, tuple[Callable[[], object], str]] = {
    "no positive": (lambda: evaluate(query=se.Labels(id=IDS + 9)), "no query has a positive"),
    "no range": (
        lambda: evaluate(protocol=se.Protocol("junk", junk_ids=(0, 1, 2))),
        "every pair is ignored|no query has",
    ),
    "listed pairs": (
        lambda: evaluate(protocol=None, listed=se.ListedPairs.of([[1], *[[]] * 5])),
        "different identities",
    ),
    "lists": (
        lambda: evaluate(source=se.Neighbors(np.tile([0, 1, 1], (6, 1)), np.ones((6, 3)))),
        "lists|had before",
    ),
    "an index": (
        lambda: evaluate(
            source=se.Neighbors(features=se.Features(np.eye(6), np.eye(6)), index="IVF2,Flat", k=2)
        ),
        "FAISS asks for",
    ),
    "other metrics": (lambda: strangers().with_options(ties="optimistic"), "no query has"),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_names_the_line_of_the_user(name: str) -> None:
    call, words = WARNINGS[name]
    with pytest.warns(se.StreamevalWarning, match=words) as caught:
        call()
    own = [one for one in caught if isinstance(one.message, se.StreamevalWarning)]
    assert own
    assert {one.filename for one in own} == {__file__}
    lines = Path(__file__).read_text().splitlines()
    for one in own:
        assert "evaluate(" in lines[one.lineno - 1] or "with_options(" in lines[one.lineno - 1]

"""A ledger: what it refuses, what it tells, and that all ways to count give the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from clusters import cluster
from support.arrays import JoinedArray, SelectedArray, content, open_array
from support.cli import main
from support.ledger import Block, LedgerStore

import streameval as se
from streameval import InputError, OptionError, OutputError, StreamevalError, StreamevalWarning

WIDTH, QUERIES = 8, 30
SIZES = {"monday": 200, "tuesday": 90, "wednesday": 40}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make features and labels of queries and of three segments, and work beside them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, WIDTH))
    monkeypatch.chdir(tmp_path)
    for name, count in {"q": QUERIES, "more": 5, **SIZES}.items():
        ids = rng.integers(0, 12 if name == "monday" else 20, count)
        rows = centres[ids] + 0.8 * rng.standard_normal((count, WIDTH))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        np.save(f"{name}.npy", rows.astype(np.float32))
        cams = rng.integers(0, 3, count)
        lines = "".join(f"{one},{cam}\n" for one, cam in zip(ids, cams, strict=True))
        Path(f"{name}.csv").write_text("id,cam\n" + lines)
    return tmp_path


def labels(name: str) -> se.Labels:
    return se.read_label_table(f"{name}.csv")


def create(path: str | Path = "L", **options: Any) -> se.Ledger:
    return se.Ledger.create(path, query="q.npy", query_labels=labels("q"), **options)


def filled(path: str | Path = "L", **options: Any) -> se.Ledger:
    ledger = create(path, **options)
    for name in SIZES:
        ledger.append(f"{name}.npy", labels(name))
    return ledger


def fresh(*names: str, **options: Any) -> se.Evaluation:
    """Evaluate some segments as one gallery."""
    sides = [labels(name) for name in names]
    cams = [one.cam for one in sides if one.cam is not None]
    return se.evaluate(
        se.Features("q.npy", np.concatenate([np.load(f"{name}.npy") for name in names])),
        query=labels("q"),
        gallery=se.Labels(np.concatenate([one.id for one in sides]), np.concatenate(cams)),
        **options,
    )


@pytest.mark.usefixtures("folder")
def test_result_is_that_of_a_fresh_evaluation() -> None:
    ledger = filled()
    found, expected = ledger.evaluation(), fresh(*SIZES)
    assert found.statistics.equals(expected.statistics)
    assert found.summary()["metrics"] == expected.summary()["metrics"]
    assert found.counts == expected.counts
    pairs = [one.grouped("cam-pair").groups for one in (found, expected)]
    assert {k: str(m.scalars) for k, m in pairs[0].items()} == {
        k: str(m.scalars) for k, m in pairs[1].items()
    }
    found.save("saved")
    assert se.Evaluation.load("saved").statistics.equals(expected.statistics)
    assert ledger.evaluation("tuesday").statistics.equals(fresh("monday", "tuesday").statistics)
    assert ledger.evaluation(1).statistics.equals(fresh("monday").statistics)
    with pytest.raises(OptionError, match="no snapshot 'sunday'; there are 0 to 3"):
        ledger.evaluation("sunday")
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
def test_segments_are_verified_as_few_at_a_time_as_memory_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, count = [], Block.count

    def noted(block: Block, *given: Any, **named: Any) -> Any:
        counted.append([part.segment.name for part in block.parts])
        return count(block, *given, **named)

    ledger = filled()
    ledger.forget([3, 4])
    monkeypatch.setattr(Block, "count", noted)
    assert ledger.verify() == []
    assert counted == [[*SIZES]]
    counted.clear()
    monkeypatch.setattr("streameval.ledger.verification.SHARE", 1 << 60)
    assert ledger.verify() == []
    assert counted == [[name] for name in SIZES]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_workers_and_any_memory_count_the_same(folder: Path) -> None:
    keep = 12 * QUERIES  # one negative a query: most new positives are beyond reach
    ledger = create(keep=keep)
    again = create("again", keep=keep)
    with cluster(2) as (_, client):
        for name in SIZES:
            one = ledger.append(f"{name}.npy", labels(name), client=client)
            memory = psutil.Process().memory_info().rss + (300 << 20)
            other = again.append(f"{name}.npy", labels(name), threads=1, memory=memory)
            assert one.metrics == other.metrics
            assert (one.pairs, one.rescanned) == (other.pairs, other.rescanned)
        assert one.rescanned
        ledger.forget([3, 4], client=client)
        ledger.add_queries("more.npy", labels("more"), client=client)
        assert ledger.verify(client=client) == []
    again.forget([3, 4])
    again.add_queries("more.npy", labels("more"))
    assert ledger.evaluation().statistics.equals(again.evaluation().statistics)


@pytest.mark.usefixtures("folder")
def test_identities_and_cameras_may_be_texts_of_any_length() -> None:
    """Also where a segment has no items, or no cameras."""
    named = {n: [f"person {'x' * one}" for one in labels(n).id] for n in ("q", "more", *SIZES)}
    ledger = se.Ledger.create(
        "L", query="q.npy", query_labels=se.Labels(np.array(named["q"])), protocol="no-camera"
    )
    np.save("nothing.npy", np.empty((0, WIDTH), np.float32))
    ledger.append("nothing.npy", se.Labels(np.empty(0, np.int64)))
    for number, name in enumerate(SIZES):
        cams = labels(name).cam if number else None
        ledger.append(f"{name}.npy", se.Labels(np.array(named[name]), cams))
    ledger.append("nothing.npy", se.Labels(np.empty(0, np.int64)), name="nothing again")
    ledger.forget(["person ", "person xx"])
    ledger.add_queries("more.npy", se.Labels(np.array(named["more"])))
    ledger.remove("nothing")
    assert ledger.verify() == []
    ids = np.concatenate([named[name] for name in SIZES])
    rows = np.concatenate([np.load(f"{name}.npy") for name in SIZES])
    kept = ~np.isin(ids, ["person ", "person xx"])
    expected = se.evaluate(
        se.Features(np.concatenate([np.load("q.npy"), np.load("more.npy")]), rows[kept]),
        query=se.Labels(np.concatenate([named["q"], named["more"]])),
        gallery=se.Labels(ids[kept]),
        protocol="no-camera",
    )
    assert ledger.evaluation().statistics.equals(expected.statistics)
    assert list(ledger.queries().id) == [*named["q"], *named["more"]]
    texts = se.Labels(np.array(["person"] * 5), np.array(list("abcde")))
    with pytest.raises(InputError, match="labels 'cam' are strings, those of the gallery integers"):
        ledger.append("more.npy", texts)


@pytest.mark.usefixtures("folder")
def test_labels_of_any_byte_order_and_of_mixed_kinds_stay_what_they_were() -> None:
    ids = [np.array([f"p{one}" for one in labels(name).id]) for name in ("q", "monday")]
    query = se.Labels(ids[0].astype(">U3"), np.array(list("abc"))[labels("q").cam])
    gallery = se.Labels(ids[1].astype(">U3"), labels("monday").cam)
    ledger = se.Ledger.create("L", query="q.npy", query_labels=query, protocol="no-camera")
    ledger.append("monday.npy", gallery)
    assert list(ledger.queries().id) == list(ids[0])
    expected = se.evaluate(
        se.Features("q.npy", "monday.npy"), query=query, gallery=gallery, protocol="no-camera"
    )
    for by in ("id", "cam-pair"):  # a query's camera is a text, a positive's an integer
        found = ledger.evaluation().grouped(by).groups
        assert found.keys() == expected.grouped(by).groups.keys()
    ledger.forget(["p3"])
    assert ledger.head().gallery == (ids[1] != "p3").sum()
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
def test_queries_change_sides_and_that_is_told() -> None:
    ledger = create()
    first = ledger.append("monday.npy", labels("monday"))
    assert first.sides["negative>positive"] == first.counts["queries_positive"]
    strangers = first.counts["queries_negative"]
    assert strangers
    assert ledger.append("tuesday.npy", labels("tuesday")).counts["queries_negative"] < strangers
    gone = ledger.remove("tuesday")
    assert gone.counts == first.counts
    assert gone.sides.get("positive>negative", 0) + gone.sides.get("excluded>negative", 0)
    assert [one.change for one in ledger.trajectory] == ["create", "append", "append", "remove"]


@pytest.mark.usefixtures("folder")
def test_a_ledger_tells_what_its_preset_does_not_reproduce() -> None:
    create(preset="market-matlab").append("monday.npy", labels("monday"))
    noted = se.Ledger("L").evaluation().provenance["preset"]
    assert noted == {"name": "market-matlab", "remark": se.PRESETS["market-matlab"].remark}


@pytest.mark.usefixtures("folder")
def test_a_range_that_would_move_is_refused_with_the_reason() -> None:
    for options in ({"range": "minmax"}, {"range": "minmax-all"}, {"metric": "dot"}):
        with pytest.raises(OptionError, match="moves when the gallery grows"):
            create(**options)
    with pytest.raises(OptionError, match="moves when the gallery grows"):
        se.Ledger.create("L", query_labels=labels("q"))
    assert not Path("L").exists()
    create(metric="dot", metrics="CMC@1,mAP").append("monday.npy", labels("monday"))
    create("M", metric="euclidean").append("monday.npy", labels("monday"))  # of length 1


@pytest.mark.usefixtures("folder")
def test_a_distance_outside_the_range_names_the_pair_and_changes_nothing() -> None:
    ledger = create(range=(0.0, 1.99))
    ledger.append("monday.npy", labels("monday"))
    rows = np.load("tuesday.npy")
    rows[17] = -np.load("q.npy")[4]
    np.save("tuesday.npy", rows)
    before = ledger.evaluation().statistics
    expected = "query 4 to item 17 of segment 'tuesday' is .* outside the range .* wider --range"
    with pytest.raises(InputError, match=expected):
        ledger.append("tuesday.npy", labels("tuesday"))
    assert len(ledger.trajectory) == 2
    assert ledger.evaluation().statistics.equals(before)
    np.save("more.npy", -np.load("monday.npy")[[31]])
    with pytest.raises(InputError, match="query 30 to item 31 of segment 'monday'"):
        ledger.add_queries("more.npy", se.Labels(np.array([1]), np.array([0])))
    units = create("M", metric="euclidean")
    np.save("long.npy", 3 * np.load("wednesday.npy"))
    with pytest.raises(InputError, match="that of vectors of length 1, and there are others"):
        units.append("long.npy", labels("wednesday"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "cuhk03"}, "draws one item of each gallery identity"),
        ({"protocol": "listed"}, "takes its pairs from lists"),
        ({"self_match": "index"}, "match by key"),
        ({"metrics": "CMC_sampled@1"}, "needs a protocol that draws"),
        ({"keep": "much"}, "keep is 'much'"),
        ({"keep": None}, "keep is None"),
        ({"range": 2}, "range is 2; expected auto"),
        ({"range": "much"}, "range is 'much'"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        create(**options)
    assert not Path("L").exists()


@pytest.mark.usefixtures("folder")
def test_a_segment_may_have_any_name_but_none() -> None:
    ledger = create()
    ledger.append("monday.npy", labels("monday"), name="one day/é; [red]")
    ledger.append("tuesday.npy", labels("tuesday"), name=7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"name of the segment is empty.*--name NAME"):
        ledger.append("wednesday.npy", labels("wednesday"), name="")
    Path("monday.npy").unlink()
    with pytest.raises(InputError, match=r"move L --name 'one day/é; \[red\]' --gallery URI"):
        ledger.forget([5])
    ledger.remove("one day/é; [red]")
    ledger.remove("7")
    assert not ledger.segments


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"for the rule 'same\(id, cam\)', and labels has no cameras"),
        ({"protocol": "no-camera", "self_match": "key"}, "self_match by key needs keys"),
        ({"protocol": "no-camera", "junk_ids": ["3"]}, "junk id '3' is a string"),
    ],
)
def test_queries_that_the_protocol_has_no_use_for_are_refused(options: Any, message: str) -> None:
    """Else every segment would be."""
    with pytest.raises(StreamevalError, match=message):
        se.Ledger.create("L", query="q.npy", query_labels=se.Labels(labels("q").id), **options)
    assert not Path("L").exists()


@pytest.mark.usefixtures("folder")
def test_segments_that_do_not_fit_are_refused() -> None:
    ledger = filled()
    shutil.copy("monday.npy", "other.npy")
    with pytest.raises(InputError, match="holds the same data as segment 'monday'"):
        ledger.append("other.npy", labels("monday"))
    with pytest.raises(InputError, match="there is a segment 'monday' already"):
        ledger.append("more.npy", labels("more"), name="monday")
    with pytest.raises(InputError, match=r"5 rows, and monday\.csv 200 ids"):
        ledger.append("more.npy", labels("monday"))
    with pytest.raises(InputError, match="array in memory"):
        ledger.append(np.load("more.npy"), labels("more"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="are integers and strings"):
        ledger.append("more.npy", se.Labels(np.array(list("abcde")), labels("more").cam))
    with pytest.raises(OptionError, match="no segment 'sunday'; there are monday, tuesday"):
        ledger.remove("sunday")
    with pytest.raises(InputError, match="none of the 1 identities"):
        ledger.forget([77])
    with pytest.raises(InputError, match="to be forgotten are strings"):
        ledger.forget(["a"])
    with pytest.raises(InputError, match="no column 'cam'"):
        ledger.add_queries("more.npy", se.Labels(labels("more").id))
    with pytest.raises(OutputError, match="holds a ledger already"):
        create()
    with pytest.raises(OutputError, match="is no ledger"):
        se.Ledger("nowhere")
    Path("full").mkdir()
    Path("full/file").touch()
    with pytest.raises(OutputError, match="holds file: a ledger needs a folder of its own"):
        create("full")
    assert len(ledger.trajectory) == 4


@pytest.mark.usefixtures("folder")
def test_queries_that_no_gallery_can_be_evaluated_with_are_refused_when_they_come() -> None:
    """Without a gallery, too: they could never be taken out again."""
    good, more = np.load("q.npy"), np.load("more.npy")
    np.save("q.npy", np.where(np.arange(QUERIES)[:, None] == 4, np.nan, good))
    with pytest.raises(InputError, match=r"q\.npy \(30, 8\) row 4 holds nan in column 0"):
        create()
    assert not Path("L").exists()
    np.save("q.npy", good)
    np.save("more.npy", np.where(np.arange(5)[:, None] == 3, 0, more))
    ledger = create()
    zero = r"more\.npy \(5, 8\) row 3 is a zero vector"
    with pytest.raises(InputError, match=zero):
        ledger.add_queries("more.npy", labels("more"))
    ledger.append("monday.npy", labels("monday"))
    with pytest.raises(InputError, match=zero):
        ledger.add_queries("more.npy", labels("more"))
    np.save("more.npy", np.full((5, WIDTH), "a"))
    with pytest.raises(InputError, match="floats or integers are needed"):
        create("M").add_queries("more.npy", labels("more"))
    np.save("more.npy", 3 * more)
    with pytest.raises(InputError, match=r"more\.npy.* row 0 is of length .* length 1"):
        create("N", metric="euclidean").add_queries("more.npy", labels("more"))


@pytest.mark.usefixtures("folder")
def test_a_distance_of_new_queries_that_is_not_finite_is_named_with_its_file() -> None:
    ledger = se.Ledger.create("L", query_labels=labels("q"), range=(0, 20))
    np.save("block.npy", np.ones((QUERIES, 40), np.float32))
    ledger.append("block.npy", labels("wednesday"))
    np.save("more.npy", np.where(np.arange(40) == 7, np.inf, np.ones((5, 40))))
    with pytest.raises(InputError, match=r"more\.npy \(5, 40\) holds inf in row 0, column 7"):
        ledger.add_queries("more.npy", labels("more"))


@pytest.mark.usefixtures("folder")
def test_options_may_be_numbers_of_numpy() -> None:
    chosen = se.MetricOptions(cmc_ranks=(np.int64(1), 3), false_accept_rates=(np.float32(0.5),))
    one = create(
        junk_ids=np.array([-1, 3]),
        options=chosen,
        false_rate_budget=np.int64(9),
        range=np.array([0, 2]),
        keep=np.int64(10**5),
    )
    other = create(
        "M",
        junk_ids=[-1, 3],
        options=se.MetricOptions(cmc_ranks=(1, 3), false_accept_rates=(0.5,)),
        false_rate_budget=9,
        range=(0, 2),
        keep=10**5,
    )
    assert one.head().settings == other.head().settings
    for ledger in (one, other):
        ledger.append(
            "monday.npy", labels("monday"), memory=np.int64(8 * 10**9), threads=np.int64(1)
        )
    assert one.evaluation().statistics.equals(other.evaluation().statistics)
    for threads in (0, "two"):
        with pytest.raises(OptionError, match=f"threads is {threads!r}"):
            one.append("tuesday.npy", labels("tuesday"), threads=threads)  # type: ignore[arg-type]


@pytest.mark.usefixtures("folder")
def test_what_are_no_labels_is_refused() -> None:
    ids: Any = labels("monday").id
    ledger = create()
    with pytest.raises(InputError, match="query_labels is of type ndarray; Labels are needed"):
        se.Ledger.create("M", query="q.npy", query_labels=ids)
    for change in (ledger.append, ledger.plan, ledger.add_queries):
        with pytest.raises(InputError, match="labels is of type ndarray; Labels are needed"):
            change("monday.npy", ids)


@pytest.mark.usefixtures("folder")
def test_groups_of_a_column_on_the_command_line_are_those_of_a_fresh_evaluation() -> None:
    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main, ["ledger", *arguments, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    for name, count in (("q", QUERIES), ("more", 5)):
        lines = Path(f"{name}.csv").read_text().splitlines()
        days = [f",{'wet' if at % 3 else 'dry'}" for at in range(count)]
        table = "\n".join(map("".join, zip(lines, [",day", *days], strict=True)))
        Path(f"{name}-days.csv").write_text(table + "\n")
    run(
        "create",
        "L",
        *["--query", "q.npy", "--query-labels", "q-days.csv", "--label-column", "day"],
    )
    run("append", "L", *["--gallery", "monday.npy", "--gallery-labels", "monday.csv"])
    read = se.read_label_table("q-days.csv", more=["day"])
    fresh_one = se.evaluate(
        se.Features("q.npy", "monday.npy"), query=read, gallery=labels("monday"), group_by="day"
    )
    for by in ("day", "cam", "cam-pair"):
        found = run("evaluate", "L", "--group-by", by)["groups"]
        assert found == json.loads(json.dumps(fresh_one.grouped(by).summary()["groups"]))
    np.save("days.npy", read.more["day"])
    by_array = run("evaluate", "L", "--group-by", "days.npy", "--out", "grouped")["groups"]
    assert by_array["values"] == fresh_one.summary()["groups"]["values"]
    assert Path("grouped/groups.csv").is_file()
    run("add-queries", "L", *["--query", "more.npy", "--query-labels", "more-days.csv"])
    groups = run("evaluate", "L", "--group-by", "day")["groups"]["values"]
    assert sum(one["counts"]["queries"] for one in groups.values()) == QUERIES + 5
    without = ["add-queries", "L", "--query", "more.npy", "--query-labels", "more.csv"]
    refused = CliRunner().invoke(main, ["ledger", *without])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no column day" in refused.stderr


@pytest.mark.usefixtures("folder")
def test_a_path_and_a_progress_of_another_type_are_refused() -> None:
    wrong: Any = 3
    for refused in (lambda: se.Ledger(wrong), lambda: create(wrong)):
        with pytest.raises(OptionError, match="path is of type int; a path, str or Path, is"):
            refused()
    with pytest.raises(OptionError, match="progress is of type int; an object of a subclass"):
        create().append("monday.npy", labels("monday"), progress=wrong)


@pytest.mark.usefixtures("folder")
def test_to_wait_for_less_than_nothing_is_refused() -> None:
    ledger = create()
    for wait in (-1, float("nan"), None):
        with pytest.raises(OptionError, match=f"wait is {wait}; seconds are needed, 0 or more"):
            ledger.append("monday.npy", labels("monday"), wait=wait)  # type: ignore[arg-type]
    told = CliRunner().invoke(main, ["ledger", "remove", "L", "--name", "monday", "--wait", "-1"])
    assert (told.exit_code, told.stdout) == (2, "")
    assert "error: wait is -1.0; seconds are needed" in told.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts there")
def test_a_path_may_be_any_bytes() -> None:
    place = Path("monday.npy").rename(os.fsdecode(b"\xff.npy"))
    ledger = create()
    ledger.append(place, labels("monday"))
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("written", [None, 7])
def test_a_ledger_of_another_format_is_refused(
    monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("streameval.ledger.head.FORMAT", written)
        create()
    with pytest.raises(OutputError, match="format 3 is expected"):
        se.Ledger("L").trajectory  # noqa: B018


@pytest.mark.usefixtures("folder")
def test_data_that_have_changed_or_gone_are_refused_where_they_are_read() -> None:
    ledger = filled(keep=12 * QUERIES)
    before = ledger.evaluation().statistics
    rows = np.load("monday.npy")
    np.save("monday.npy", rows[::-1])
    for change in (
        lambda: ledger.append("more.npy", labels("more")),
        lambda: ledger.forget([3]),
        lambda: ledger.add_queries("more.npy", labels("more")),
    ):
        with pytest.raises(InputError, match=r"'monday' of L, .*monday\.npy, has changed"):
            change()
    Path("monday.npy").unlink()
    with pytest.raises(InputError, match=r"does not exist.*ledger move L --name monday"):
        ledger.append("more.npy", labels("more"))
    with pytest.raises(InputError, match="does not hold what segment 'monday' held"):
        ledger.move("monday", "tuesday.npy")
    assert ledger.evaluation().statistics.equals(before)
    np.savez("moved.npz", rows=rows)
    ledger.move("monday", "moved.npz::rows")
    assert ledger.verify() == []
    ledger.append("more.npy", labels("more"))
    Path("moved.npz").unlink()
    ledger.remove("monday")  # takes no data
    np.save("q.npy", np.load("q.npy")[::-1])
    with pytest.raises(InputError, match=r"queries of L, .*q\.npy, has changed"):
        ledger.forget([5])


@pytest.mark.usefixtures("folder")
def test_data_that_have_changed_behind_their_time_are_refused() -> None:
    """As by a tool that gives files the time that they had."""
    ledger = filled(keep=12 * QUERIES)
    before = Path("monday.npy").stat()
    np.save("monday.npy", np.load("monday.npy")[::-1])
    os.utime("monday.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match=r"'monday' of L, .*monday\.npy, has changed"):
        ledger.append("more.npy", labels("more"))


@pytest.mark.usefixtures("folder")
def test_data_are_found_when_the_folder_that_they_were_named_from_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = se.Ledger(Path(create().path).absolute())
    Path("work").mkdir()
    np.savez("all.npz", rows=np.load("tuesday.npy"))
    tables = [labels(name) for name in ("monday", "tuesday")]
    with monkeypatch.context() as patch:
        patch.chdir("work")
        ledger.append("../monday.npy", tables[0])
        ledger.append("../all.npz::rows", tables[1])
    Path("work").rmdir()
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [None, "wednesday"])
def test_stored_distances_of_queries_that_have_moved_are_found_again(name: str | None) -> None:
    """They are of all segments, and are told once: by any of them, or as those of queries."""
    rng = np.random.default_rng(0)
    ledger = se.Ledger.create("L", query_labels=labels("q"), range=(0, 20))
    for one in ("tuesday", "wednesday"):
        np.save("block.npy", rng.integers(0, 20, (QUERIES, SIZES[one])).astype("f4"))
        ledger.append(Path("block.npy").rename(f"{one}-distances.npy"), labels(one), name=one)
    np.save("before.npy", rng.integers(0, 20, (5, 130)).astype("f4"))
    ledger.add_queries("before.npy", labels("more"))
    Path("before.npy").rename("after.npy")
    assert len(ledger.verify()) == 2
    ledger.move(name, "after.npy")
    assert ledger.verify() == []
    with pytest.raises(InputError, match="holds none of the queries'"):
        ledger.move(None, "tuesday-distances.npy")


@pytest.mark.usefixtures("folder")
def test_two_writers_at_once_wait_or_are_told() -> None:
    ledger = create()
    results: list[Any] = []

    def append(name: str) -> None:
        results.append(se.Ledger("L").append(f"{name}.npy", labels(name)).number)

    threads = [threading.Thread(target=append, args=(name,)) for name in SIZES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1, 2, 3]
    assert {one.name for one in ledger.segments} == set(SIZES)
    assert ledger.verify() == []
    with (
        LedgerStore("L").locked(),
        pytest.raises(OutputError, match=r"another process changes L, .* within 0\.1 s; nothing"),
    ):
        ledger.remove("monday", wait=0.1)
    ledger.remove("monday")


@pytest.mark.usefixtures("folder")
def test_commands_tell_what_they_did() -> None:
    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main, ["ledger", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    run("create", "L", "--query", "q.npy", "--query-labels", "q.csv", "--range", "0,2")
    for name in SIZES:
        arguments = ["L", "--gallery", f"{name}.npy", "--gallery-labels", f"{name}.csv"]
        planned = json.loads(run("append", *arguments, "--dry-run", "--json"))
        done = json.loads(run("append", *arguments, "--json"))
        assert planned["pairs"] == done["pairs"]
    Path("gone.txt").write_text("3\n4\n")
    forgotten = run("remove", "L", "--ids", "gone.txt")
    assert "forget 3, 4" in forgotten
    assert "from Q+ to Q-" in forgotten
    assert "35 queries" in run(
        "add-queries", "L", "--query", "more.npy", "--query-labels", "more.csv"
    )
    assert "2 segments" in run("remove", "L", "--name", "monday")
    Path("wednesday.npy").rename("elsewhere.npy")
    failed = CliRunner().invoke(main, ["ledger", "verify", "L"])
    assert failed.exit_code == 2
    assert "wednesday.npy does not exist" in failed.output
    run("move", "L", "--name", "wednesday", "--gallery", "elsewhere.npy")
    assert "no difference" in run("verify", "L")
    shown = run("show", "L", "--plot", "CMC@1")
    assert "CMC@1 against the size of the gallery" in shown
    summary = json.loads(run("show", "L", "--json"))
    assert [one["change"] for one in summary["trajectory"]][-2:] == ["remove", "move"]
    result = json.loads(run("evaluate", "L", "--json", "--out", "out"))
    assert result["metrics"] == summary["metrics"]
    assert Path("out/per_query.parquet").is_file()
    run("evaluate", "L", "--at", "tuesday", "--out", "past")
    expected = fresh("monday", "tuesday", range=(0.0, 2.0)).statistics
    assert se.Evaluation.load("past").statistics.equals(expected)
    for wrong in (["append", "L", "--distances", "q.npy"], ["remove", "L"], ["move", "L"]):
        assert CliRunner().invoke(main, ["ledger", *wrong]).exit_code == 2


@pytest.mark.usefixtures("folder")
def test_identities_to_be_forgotten_are_lines_with_their_spaces() -> None:
    names = np.array([f"person {one}" for one in labels("monday").id])
    query = se.Labels(np.array([f"person {one}" for one in labels("q").id]), labels("q").cam)
    ledger = se.Ledger.create("L", query="q.npy", query_labels=query)
    ledger.append("monday.npy", se.Labels(names, labels("monday").cam))
    Path("gone.txt").write_bytes("\ufeffperson 3\r\n\r\nperson 4".encode())
    done = CliRunner().invoke(main, ["ledger", "remove", "L", "--ids", "gone.txt"])
    assert done.exit_code == 0, done.output
    assert ledger.head().gallery == (~np.isin(names, ["person 3", "person 4"])).sum()
    Path("gone").write_text("person 5")  # no array by its name
    done = CliRunner().invoke(main, ["ledger", "remove", "L", "--ids", "gone"])
    assert "forget person 5" in done.output
    np.save("gone.npy", np.array(["person 6"]))
    done = CliRunner().invoke(main, ["ledger", "remove", "L", "--ids", "gone.npy"])
    assert "forget person 6" in done.output
    Path("none.txt").write_text("\n")
    done = CliRunner().invoke(main, ["ledger", "remove", "L", "--ids", "none.txt"])
    assert "none.txt holds no identity: one a line is expected" in done.output
    create("M").append("monday.npy", labels("monday"))
    Path("comma.txt").write_text("3,4\n")
    done = CliRunner().invoke(main, ["ledger", "remove", "M", "--ids", "comma.txt"])
    assert "comma.txt has the line '3,4'" in done.output
    assert "give one integer a line" in done.output


@pytest.mark.usefixtures("folder")
def test_identities_that_are_not_there_to_be_forgotten_are_told() -> None:
    ledger = filled()
    left = ledger.head().gallery - sum((labels(name).id == 3).sum() for name in SIZES)
    words = "2 of the 3 identities to be forgotten are not in the gallery: 77, 88"
    with pytest.warns(StreamevalWarning, match=words) as told:
        assert ledger.forget([3, 77, 88, 77]).gallery == left
    assert told[0].filename == __file__
    Path("gone.txt").write_text("3\n4\n")  # 3 has been forgotten
    done = CliRunner().invoke(main, ["ledger", "remove", "L", "--ids", "gone.txt"])
    assert done.exit_code == 0
    assert "warning: 1 of the 2 identities to be forgotten are not in the gallery: 3" in done.stderr


@pytest.mark.usefixtures("folder")
def test_identities_to_be_forgotten_may_be_any_array_of_labels() -> None:
    names = np.array([f"p{one}" for one in labels("monday").id])
    query = se.Labels(np.array([f"p{one}" for one in labels("q").id]), labels("q").cam)
    ledger = se.Ledger.create("L", query="q.npy", query_labels=query)
    ledger.append("monday.npy", se.Labels(names, labels("monday").cam))
    texts: Any
    for texts in (np.array(["p3"], object), np.array([b"p4"]), np.array(["p5"], "T")):
        assert ledger.forget(texts).change == "forget"
    assert ledger.head().gallery == (~np.isin(names, ["p3", "p4", "p5"])).sum()
    for wrong in ([3.0], [True], [3, "p3"]):
        with pytest.raises(InputError, match=r"to be forgotten .* integers or strings"):
            ledger.forget(wrong)  # type: ignore[arg-type]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from streameval.cli import main; "
        "main(['ledger', 'append', '--help'], standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'numba', 'zarr', 'icechunk')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_parts_and_joins_of_arrays_are_those_of_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [
        rng.integers(0, 99, (rows, 7)).astype(d) for rows, d in ((5, "f4"), (0, "f4"), (9, "i2"))
    ]
    for number, one in enumerate(values):
        np.save(tmp_path / f"{number}.npy", one)
    np.savez_compressed(tmp_path / "3.npz", a=values[0])
    files = [tmp_path / "0.npy", tmp_path / "1.npy", tmp_path / "2.npy", f"{tmp_path}/3.npz::a"]
    arrays = [open_array(file) for file in files]
    whole = np.concatenate([*values, values[0]])
    joined = JoinedArray(arrays, 0, "joined")
    assert joined.shape == whole.shape
    rows = np.array([0, 1, 4, 5, 11, 17])
    columns = np.array([1, 2, 5])
    some = SelectedArray(SelectedArray(joined, rows), columns, 1)
    wide = JoinedArray([joined, some_columns := SelectedArray(joined, columns, 1)], 1, "wide")
    expected = {
        joined: whole,
        some: whole[rows][:, columns],
        SelectedArray(joined, rows): whole[rows],
        some_columns: whole[:, columns],
        wide: np.concatenate([whole, whole[:, columns]], axis=1),
    }
    for array, right in expected.items():
        for top in range(len(right) + 1):
            for bottom in range(top, len(right) + 1):
                assert np.array_equal(array.read((top, bottom)), right[top:bottom])
                cut = array.read((top, bottom), (1, 3))
                assert np.array_equal(cut, right[top:bottom, 1:3])
        taken = np.arange(0, len(right), 2)
        assert np.array_equal(array.take(taken), right[taken])
        assert array.read_scratch_bytes(3, 3) >= 0


def test_content_is_the_same_in_any_format(tmp_path: Path) -> None:
    import zarr

    values = np.random.default_rng(0).random((300, 5), np.float32)
    np.save(tmp_path / "a.npy", values)
    zarr.create_array(tmp_path / "b.zarr", data=values, chunks=(7, 2))
    one, other = (content(open_array(tmp_path / name)) for name in ("a.npy", "b.zarr"))
    assert one == other
    values[299, 4] = np.nextafter(values[299, 4], 2)
    assert content(open_array(values)) != one

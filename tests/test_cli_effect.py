"""Options that would have no effect beside the others are refused; with an effect, they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.cli import main
from test_cli import CSV, FEATURES, data, run

__all__ = ["data"]


def said(arguments: str, *more: str) -> str:
    """Return what a command that is refused says, before it has opened anything."""
    done = CliRunner().invoke(main, [*arguments.split(), *more])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith("error: ")
    return done.stderr


@pytest.mark.parametrize(
    ("command", "option", "effective"),
    [
        ("evaluate", "--overwrite", "--out DIR"),
        ("evaluate", "--overwrite", "--index HNSW8 --save-index i.faiss"),
        ("evaluate", "--overwrite", "--trec-qrels q.txt"),
        ("evaluate", "--rate 50G", "--dry-run"),
        ("evaluate", "--group-by cam --format csv", "--out DIR"),
        ("show R", "--overwrite", "--out FILE"),
        ("compare R S", "--overwrite", "--out FILE"),
        ("average R S", "--overwrite", "--out FILE"),
        ("plot R -o f.svg", "--metric CMC@1", "--curve camera-pairs"),
        ("report R -o r.html", "--top 3", "--images {row}.jpg"),
        ("ledger create L", "--label-column day", "--query-labels absent.csv"),
        ("ledger remove L", "--memory 1GB", "--ids FILE"),
        ("ledger remove L", "--threads 2", "--ids FILE"),
        ("ledger remove L", "--workers 2", "--ids FILE"),
        ("ledger remove L", "--scheduler tcp://127.0.0.1:1", "--ids FILE"),
        ("ledger evaluate L", "--overwrite", "--out DIR"),
    ],
)
@pytest.mark.usefixtures("_nothing_there")
def test_an_option_wants_another(command: str, option: str, effective: str) -> None:
    other = "--name monday" if command == "ledger remove L" else ""
    name, remedy = option.split()[0], effective.split()[0]
    words = said(f"{command} {other} {option}")
    assert f"got {name}, which has no effect here: give " in words
    assert f", or leave {name} out" in words
    assert remedy in words or name == "--overwrite"
    assert "no effect" not in said(f"{command} {option} {effective}")


@pytest.mark.parametrize(
    ("command", "option", "against"),
    [
        ("evaluate", "--format csv", "--dry-run"),
        ("show R", "--metrics mAP", "--config"),
        ("show R", "--ci 95", "--config"),
        ("show R", "--format csv", "--config"),
        ("show R", "--json", "--config"),
        ("compare R S", "--queries 3", "--format csv"),
        ("ledger show L", "--plot mAP", "--json"),
    ],
)
@pytest.mark.usefixtures("_nothing_there")
def test_an_option_that_another_makes_useless(command: str, option: str, against: str) -> None:
    name = option.split()[0]
    words = said(f"{command} {option} {against}")
    assert f"got {name}, which has no effect here: " in words
    assert f", or leave {name} out" in words
    for alone in (option, against):
        assert "no effect" not in said(f"{command} {alone}")


@pytest.mark.usefixtures("_nothing_there")
def test_a_default_that_is_not_given_is_no_option() -> None:
    for command in ("compare R S --format csv", "report R -o r.html", "plot R -o f.svg"):
        assert "no effect" not in said(command)


@pytest.mark.usefixtures("data")
def test_options_of_a_config_file_are_refused_likewise() -> None:
    Path("run.toml").write_text('rate = "50G"\noverwrite = false\n')
    refused = run(*FEATURES, *CSV, "--config", "run.toml")
    assert refused.exit_code == 2
    assert "got --rate, which has no effect here: give --dry-run" in refused.stderr
    planned = run(*FEATURES, *CSV, "--config", "run.toml", "--dry-run", "--json")
    assert planned.exit_code == 0, planned.stderr
    assert json.loads(planned.stdout)["seconds"] > 0


@pytest.fixture
def _nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("data")
def test_shared_options_are_taken_by_every_command_of_a_ledger() -> None:
    labels = ("--query-labels", "query.csv", "--range", "0,2")
    made = CliRunner().invoke(main, ["ledger", "create", "L", *labels, "--quiet", "--json"])
    assert made.exit_code == 0, made.stderr
    verified = CliRunner().invoke(main, ["ledger", "verify", "L", "--quiet", "--json"])
    assert verified.exit_code == 0, verified.stderr
    assert json.loads(verified.stdout) == {
        "segments": 0,
        "queries": 10,
        "pairs": 0,
        "differences": [],
    }


LISTED = ["--index", "Flat", "-k", "3"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "identities of the query are missing"),
        ([*CSV, "--metrics", "no-such"], "unknown metric 'no-such'"),
        ([*CSV, "--range", "1,0"], "range is 1.0,0.0"),
        ([*CSV, "--refine", "mAP"], "mAP"),
        ([*CSV, *LISTED, "--trec-run", "r.txt", "--ties", "expected"], "many orders"),
    ],
)
def test_what_is_refused_discards_no_finished_work(
    data: Path, options: list[str], words: str
) -> None:
    kept = data / "R.progress" / "lock"
    kept.parent.mkdir()
    kept.touch()
    done = run(*FEATURES, *options, "--out", "R", "--overwrite")
    assert done.exit_code == 2
    assert words in done.stderr
    assert kept.exists()

"""Config files: every option of a command can be given in one; what is wrong there is named."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.cli import (
    CONFIG,
    Metrics,
    Value,
    accepts,
    as_toml,
    in_force,
    main,
    options_by_key,
    read_config,
)
from test_cli import CSV, STORED, data, run

from streameval import InputError, OptionError

__all__ = ["data"]


def commands(group: click.Group, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every command by the words that call it."""
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        own = (*above, name)
        found |= commands(command, own) if isinstance(command, click.Group) else {own: command}
    return found


COMMANDS = {
    words: command
    for words, command in commands(main).items()
    if any(param.name == CONFIG and not param.expose_value for param in command.params)
}
OPTIONS = [
    pytest.param(words, key, id=f"{'-'.join(words)}-{key}")
    for words, command in COMMANDS.items()
    for key in options_by_key(command)
]


def taken(words: tuple[str, ...], *arguments: str) -> dict[str, Any]:
    """Return what a command is called with, and don't run it."""
    command = COMMANDS[words]
    required = [
        text
        for param in command.params
        if param.required and not (f"--{param.name}" in arguments or param.opts[0] in arguments)
        for text in ([param.opts[0], "3"] if isinstance(param, click.Option) else ["L"])
    ]
    context = command.make_context(words[-1], [*required, *arguments])
    values: dict[str, Any] = context.params
    return values


def sample(option: click.Option) -> Any:
    """Return a value of an option that is not its default, as a config file has it."""
    if option.is_flag:
        return True
    one: Any = {"integer": 3, "float": 2.5}.get(option.type.name, "some-text")
    names = [] if isinstance(option.type, Metrics) else list(getattr(option.type, "names", tuple)())
    if names:
        one = names[-1]
    if option.name == "k":
        one = 5
    if option.name == "pairs":
        return ["good=a.csv", "junk=/b.txt"]
    return [one, names[0] if names else "other"] if option.multiple else one


def arguments_of(option: click.Option, value: Any) -> list[str]:
    name = max(option.opts, key=len)
    if option.is_flag:
        return [name]
    return [text for one in (value if option.multiple else [value]) for text in (name, str(one))]


def test_the_commands_that_take_one() -> None:
    assert {" ".join(words) for words in COMMANDS} == {
        "evaluate",
        "compare-index",
        "ledger create",
        "ledger append",
    }


@pytest.mark.parametrize(("words", "key"), OPTIONS)
def test_every_option_may_be_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    option = options_by_key(COMMANDS[words])[key]
    value = sample(option)
    Path("run.toml").write_text(as_toml({key: value}))
    by_file = taken(words, "--config", "run.toml")
    by_option = taken(words, *arguments_of(option, value))
    if not option.required:
        assert by_file == by_option
        assert by_file != taken(words)
    # back to a file, and from there
    written = in_force(COMMANDS[words], by_option)
    Path("again.toml").write_text(as_toml(written))
    read = read_config("again.toml", COMMANDS[words])
    assert {str(options_by_key(COMMANDS[words])[one].name) for one in written} == set(read)


@pytest.mark.parametrize(("words", "key"), OPTIONS)
@pytest.mark.parametrize("wrong", [{"a": 1}, [[1]], [True], 2024, -1.5, True, "text"])
def test_values_of_another_type_are_named(
    tmp_path: Path, words: tuple[str, ...], key: str, wrong: Any
) -> None:
    file, option = tmp_path / "run.toml", options_by_key(COMMANDS[words])[key]
    text = f"{key} = {{a = 1}}" if isinstance(wrong, dict) else as_toml({key: wrong})
    file.write_text(text)
    kind, fits = option.type, isinstance(wrong, str)
    if option.is_flag:
        fits = isinstance(wrong, bool)
    elif not isinstance(kind, Value):
        fits = type(wrong) is int or (type(wrong) is float and kind.name == "float")
    elif int in kind.scalars:
        fits = fits or type(wrong) in (int, float)
    elif bool in kind.scalars:
        fits = fits or isinstance(wrong, bool)
    if fits:
        assert list(read_config(str(file), COMMANDS[words])) == [option.name]
        return
    with pytest.raises(OptionError) as caught:
        read_config(str(file), COMMANDS[words])
    for said in (str(file), key, "expected "):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("memroy = '2GB'", ("run.toml", "'memroy'", "the nearest is memory")),
        ("query_ids = 'a.npy'", ("'query_ids'", "the nearest is query-ids")),
        ("config = 'other.toml'", ("'config'", "nearest")),
        ("[evaluate]\nties = 'stable'", ("'evaluate'", "long name of an option of streameval")),
        ("ties = ", ("run.toml can't be read", "Invalid value")),
        ("ties = 'stable'\nties = 'stable'", ("can't be read",)),
        (
            "junk-id = true",
            ("junk-id is True", "expected one or a list, of each a text or a number"),
        ),
        ("range = [0, 'x']", ("range is [0, 'x']", "a list of two numbers")),
        ("threads = 2.0", ("threads is 2.0", "expected a whole number")),
        ("quiet = 1", ("quiet is 1", "expected true or false")),
        ("query = 5", ("query is 5", "expected a text")),
        ("'<script>alert(1)</script>\\u001b' = 1".replace("'", '"'), ("<script>", "\\x1b")),
    ],
)
def test_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    result = run("--config", "run.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    for words in says:
        assert words in result.stderr


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\x00")
    for name, words in (
        ("absent.toml", "does not exist"),
        ("", "can't be read"),
        ("binary.toml", "can't"),
    ):
        with pytest.raises(InputError, match=words):
            read_config(str(tmp_path / name) if name else str(tmp_path), COMMANDS[("evaluate",)])


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    values = {
        "query": "q.npy",
        "gallery": "/data/g.npy",
        "distances": "s3://bucket/d.zarr",
        "neighbors": "lists.npz::items",
        "query-labels": "../q.csv",
        "group-by": "groups.npy",
        "protocol": "mine.toml",
        "index": "IVF64,Flat",
        "save-index": "kept.faiss",
        "out": "result",
        "as": "torchreid",
        "pairs": ["good=a.csv", "junk=/b.txt"],
    }
    Path("runs/run.toml").write_text(as_toml(values))
    read = taken(("evaluate",), "--config", "runs/run.toml")
    assert read["query"] == "runs/q.npy"
    assert read["gallery"] == "/data/g.npy"
    assert read["distances"] == "s3://bucket/d.zarr"
    assert read["neighbors"] == "runs/lists.npz::items"
    assert read["query_labels"] == "runs/../q.csv"
    assert read["group_by"] == "runs/groups.npy"
    assert list(read["protocols"]) == ["runs/mine.toml"]
    assert read["index"] == "IVF64,Flat"
    assert read["save_index"] == "runs/kept.faiss"
    assert read["out"] == "runs/result"
    assert read["preset"] == "torchreid"
    assert read["pairs"] == ("good=runs/a.csv", "junk=/b.txt")
    Path("runs/more.toml").write_text(
        as_toml(
            {"group-by": "cam", "protocol": "listed", "index": "my.index", "query": "shape:5x4"}
        )
    )
    read = taken(("evaluate",), "--config", "runs/more.toml")
    assert list(read["protocols"]) == ["listed"]
    assert [read[name] for name in ("group_by", "index", "query")] == [
        "cam",
        "runs/my.index",
        "shape:5x4",
    ]
    # what is on the command line is relative to where one is
    assert taken(("evaluate",), "--config", "runs/run.toml", "--query", "q.npy")["query"] == "q.npy"


def test_lists_and_numbers_are_written_as_such(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("range = [0, 2.5]\nmetrics = ['mAP', 'CMC@1']\njunk-id = [-1, 'x']\nk = 100\n")
    read = taken(("evaluate",), "--config", str(file))
    assert read["range"] == (0, 2.5)
    assert read["metrics"] == ("mAP", "CMC@1")
    assert read["junk_ids"] == ("-1", "x")
    assert read["k"] == 100


def test_the_command_line_goes_before(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("ties = 'stable'\nthreads = 7\njunk-id = [4, 5]\nquiet = true\n")
    read = taken(("evaluate",), "--ties", "expected", "--config", str(file), "--junk-id", "6")
    assert (read["ties"], read["threads"], read["junk_ids"]) == ("expected", 7, ("6",))
    assert read["quiet"] is True


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(), max_size=3))
def test_texts_are_written_so_that_they_are_read(values: dict[str, str]) -> None:
    clean = {name: text.encode("utf-8", "ignore").decode() for name, text in values.items()}
    written = as_toml(clean)
    assert tomllib.loads(written) == clean
    assert written.replace("\n", "").isprintable()


def test_every_option_has_a_type_that_a_config_file_knows() -> None:
    """A text without a type has neither completion nor a meaning in a config file."""
    for words, command in commands(main).items():
        for param in command.params:
            assert param.type is not click.STRING, (words, param.name)
            assert isinstance(accepts(param.type, "text"), bool), (words, param.name)


def show(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["show", *arguments])


@pytest.mark.usefixtures("data")
def test_a_saved_result_has_the_config_that_repeats_it() -> None:
    more = ("--ties", "optimistic", "--range", "0,2", "--metrics", "mAP,mReP_max", "--ci", "90")
    first = run(*STORED, *CSV, *more, "--junk-id", "3", "--out", "result", "--quiet")
    assert first.exit_code == 0, first.stderr
    assert show("result", "--config", "--out", "again.toml").stdout == ""
    text = Path("again.toml").read_text()
    assert "out" not in tomllib.loads(text)
    assert tomllib.loads(text)["junk-id"] == ["3"]
    second = run("--config", "again.toml", "--out", "again")
    assert second.exit_code == 0, second.stderr
    summaries = [json.loads(Path(one, "summary.json").read_text()) for one in ("result", "again")]
    for summary in summaries:
        for varies in ("seconds", "started", "command"):
            del summary["provenance"][varies]
        for depends_on_what_is_free in ("projected_peak", "memory"):
            del summary["provenance"]["plan"][depends_on_what_is_free]
    assert summaries[0] == summaries[1]
    for folders, words in ((("result", "again"), "one result"), (("nowhere",), "nowhere")):
        refused = show(*folders, "--config")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert words in refused.stderr

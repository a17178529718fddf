"""Protocols of a user's own, as TOML files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import CSV, STORED, data, run
from test_cli_metrics import call, refused, summary

import streameval as se

__all__ = ["data"]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_key(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.toml",
        'ignore = [["cam"], ["clothes", "id"]]  # in any order',
        'cmc = "all-shots"',
        'junk_ids = [-1, 0, "x"]',
        'self_match = "key"',
        "shot_draws = 100",
        "shot_seed = 7",
    )
    assert se.read_protocol(path) == se.Protocol(
        "mine",
        ignore=(("cam",), ("id", "clothes")),
        cmc="all-shots",
        junk_ids=(-1, 0, "x"),
        self_match="key",
        shot_draws=100,
        shot_seed=7,
    )


@pytest.mark.parametrize("protocol", se.PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_the_named_protocols_can_be_written(protocol: se.Protocol, tmp_path: Path) -> None:
    values = {**vars(protocol), "name": "other", "junk_ids": list(protocol.junk_ids)}
    values["ignore"] = list(protocol.ignore)
    trials = values.pop("trials")
    texts = {True: "true", False: "false"}
    lines = (
        f"{key} = {texts[value] if isinstance(value, bool) else repr(value)}"
        for key, value in values.items()
        if value is not None
    )
    if trials is not None:
        table = (f"{key} = {value!r}" for key, value in vars(trials).items() if key != "per")
        lines = (*lines, "[trials]", f"per = {list(trials.per)!r}", *table)
    assert se.read_protocol(write(tmp_path / "p.toml", *lines)) == replace(protocol, name="other")


def test_options_of_a_protocol_stand_behind_those_that_are_given() -> None:
    protocol = se.Protocol("mine", ("same(id, cam)",), ap="trapezoid", ties="stable")
    sides = {"query": se.Labels([1], [1]), "gallery": se.Labels([1, 2], [2, 2])}
    given = {**sides, "protocol": protocol, "metrics": "mAP"}
    distances = se.Distances(np.array([[1.0, 1.0]]))

    def options(**more: Any) -> tuple[str, str]:
        result = se.evaluate(distances, **given, **more)
        assert result.provenance["protocol"]["ap"] == "trapezoid"
        return result.options.ap, result.options.ties

    assert options() == ("trapezoid", "stable")
    assert options(ap="step", ties="pessimistic") == ("step", "pessimistic")
    assert options(options=se.MetricOptions(ap="threshold")) == ("threshold", "stable")
    for key, other in (("ap", "area"), ("ties", "none")):
        with pytest.raises(se.OptionError, match=f"{key} of protocol mine is '{other}'; one of '"):
            replace(protocol, **{key: other})


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["same_cam = true"], "unknown key 'same_cam': the nearest are same_camera"),
        (["zzz = 1"], "unknown key 'zzz': known: name, ignore"),
        (["same_camera = true"], "lacks ignore, the rules of ignored pairs"),
        (["same_identity_and_camera = 1"], "identity_and_camera of protocol mine is 1; true or f"),
        (["ignore = [['cam']]"], "has ignore and same_identity_and_camera or same_camera"),
        (["cmc = 'first'"], "cmc of protocol mine is 'first'; one of 'first-match', 'all-shots"),
        (["junk_ids = -1"], "junk_ids of protocol mine is -1; a list of integers or strings"),
        (
            ["junk_ids = [0.5]"],
            "junk_ids of protocol mine is .0.5,.; a list of integers or",
        ),
        (["junk_ids = [true]"], "junk_ids of protocol mine is .True,.; a list"),
        (["self_match = 'id'"], "self_match of protocol mine is 'id'; 'index' or 'key' is needed"),
        (["name = 'market1501'"], "is named 'market1501', as a shipped protocol"),
        (["name = 3"], "name of protocol 3 is 3; a string is needed"),
        (["listed = 'yes'"], "listed of protocol mine is 'yes'; true or false is needed"),
        (["shot_draws = 0"], "shot_draws of protocol mine is 0; a whole number of at least 1"),
        (["shot_seed = 0.5"], "shot_seed of protocol mine is 0.5; a whole number of at least 0"),
        (["listed = true", "cmc = 'single-gallery-shot'"], "takes its pairs from lists, and its"),
    ],
)
def test_files_that_are_refused(lines: list[str], says: str, tmp_path: Path) -> None:
    flag = "same_identity_and_camera = true"
    whole = [] if "lacks" in says or flag.split()[0] in lines[0] else [flag]
    path = write(tmp_path / "mine.toml", *whole, *lines)
    with pytest.raises(se.OptionError, match=says) as caught:
        se.read_protocol(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("ignore", "says"),
    [
        ("'same(id)'", r"ignore of protocol mine is 'same\(id\)'; a list of rules, such as"),
        ("['id', 'cam']", r"protocol mine: rule 'id' has 'id'; expected same\(COLUMN"),
        ("[['id', 3]]", "a list of rules"),
        ("[[]]", "a list of rules"),
        ("[['']]", "a list of rules"),
    ],
)
def test_rules_that_are_refused(ignore: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", f"ignore = {ignore}")
    with pytest.raises(se.OptionError, match=says):
        se.read_protocol(path)


@pytest.mark.parametrize(
    ("identity_and_camera", "camera", "ignore"),
    [
        ("false", "false", ()),
        ("true", "false", (("id", "cam"),)),
        ("false", "true", (("cam",),)),
        ("true", "true", (("id", "cam"), ("cam",))),
    ],
)
def test_the_earlier_spelling(
    identity_and_camera: str, camera: str, ignore: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    lines = f"same_identity_and_camera = {identity_and_camera}", f"same_camera = {camera}"
    path = write(tmp_path / "mine.toml", *lines)
    flags = identity_and_camera == "true", camera == "true"
    python = se.Protocol("mine", same_identity_and_camera=flags[0], same_camera=flags[1])
    assert se.read_protocol(path) == python == se.Protocol("mine", ignore)
    assert replace(python, name="other") == se.Protocol("other", ignore)


def test_values_may_be_of_any_iterable() -> None:
    rules = (iter(rule) for rule in (["clothes", "id"], ["cam"]))
    protocol = se.Protocol("mine", rules, junk_ids=iter([3, -1]))  # type: ignore[arg-type]
    assert protocol == se.Protocol("mine", (("id", "clothes"), ("cam",)), junk_ids=(3, -1))


@pytest.mark.parametrize("given", [{"junk_ids": [np.array(-1)]}, {"ignore": [[np.array("cam")]]}])
def test_values_that_are_arrays_of_no_axis_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(se.OptionError, match=next(iter(given))):
        se.Protocol("mine", **given)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.toml", "same_camera =")
    with pytest.raises(se.InputError, match=f"protocol {bad} can't be read"):
        se.read_protocol(bad)
    with pytest.raises(
        se.InputError, match=r"absent.toml does not exist: .*, or one of allshots, .*market1501"
    ):
        se.read_protocol(tmp_path / "absent.toml")
    bad.write_bytes(b"same_camera = true\rignore = []")
    with pytest.raises(se.InputError, match="can't be read"):  # no line of TOML ends with CR alone
        se.read_protocol(bad)


@pytest.mark.usefixtures("data")
def test_on_the_command_line() -> None:
    market = ["same_identity_and_camera = true"]
    write(Path("mine.toml"), *market)
    found = summary("--protocol", "mine.toml", "--out", "mine")
    expected = summary()
    assert found["metrics"] == expected["metrics"]
    assert found["provenance"]["protocol"] == {
        **expected["provenance"]["protocol"],
        "name": "mine",
    }
    assert "ignores other pairs (market1501" not in call("conventions", "mine").stdout
    write(Path("mine.toml"), *market, "same_camera = true")
    assert (
        summary("--protocol", "mine.toml")["counts"]
        == (summary("--protocol", "separate-camera")["counts"])
    )
    write(Path("mine.toml"), *market, "same_kamera = true")
    refused(run(*STORED, *CSV, "--protocol", "mine.toml"), "same_kamera", "same_camera")
    refused(run(*STORED, *CSV, "--protocol", "mine"), "--protocol is 'mine'")

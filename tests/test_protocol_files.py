"""Protocols of a user's own, as TOML files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
        "same_identity_and_camera = false  # cameras do not matter here",
        "same_camera = true",
        'cmc = "all-shots"',
        'junk_ids = [-1, 0, "x"]',
        'self_match = "key"',
        "shot_draws = 100",
        "shot_seed = 7",
    )
    assert se.read_protocol(path) == se.Protocol(
        "mine",
        same_identity_and_camera=False,
        same_camera=True,
        cmc="all-shots",
        junk_ids=(-1, 0, "x"),
        self_match="key",
        shot_draws=100,
        shot_seed=7,
    )


@pytest.mark.parametrize("protocol", se.PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_the_named_protocols_can_be_written(protocol: se.Protocol, tmp_path: Path) -> None:
    values = {**vars(protocol), "name": "other", "junk_ids": list(protocol.junk_ids)}
    texts = {True: "true", False: "false"}
    lines = (
        f"{key} = {texts[value] if isinstance(value, bool) else repr(value)}"
        for key, value in values.items()
        if value is not None
    )
    assert se.read_protocol(write(tmp_path / "p.toml", *lines)) == replace(protocol, name="other")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["same_cam = true"], "unknown key 'same_cam': the nearest are same_camera"),
        (["zzz = 1"], "unknown key 'zzz': known: name, same_identity_and_camera"),
        (["same_camera = true"], "lacks same_identity_and_camera: true or false"),
        (["same_identity_and_camera = 1"], "same_identity_and_camera is 1; expected true or false"),
        (["cmc = 'first'"], "cmc is 'first'; expected 'first-match' or 'all-shots"),
        (["junk_ids = -1"], "junk_ids is -1; expected a list, of an integer or a string"),
        (["junk_ids = [0.5]"], "junk_ids is .0.5.; expected a list, of an integer or a string"),
        (["junk_ids = [true]"], "junk_ids is .True.; expected a list"),
        (["self_match = 'id'"], "self_match is 'id'; expected 'index' or 'key'"),
        (["name = 'market1501'"], "is named 'market1501', as one that is there"),
        (["shot_draws = 0"], "shot_draws of protocol mine is 0; a whole number of at least 1"),
        (["shot_seed = 0.5"], "shot_seed is 0.5; expected an integer"),
        (["listed = true", "cmc = 'single-gallery-shot'"], "takes its pairs from lists, and its"),
    ],
)
def test_files_that_are_refused(lines: list[str], says: str, tmp_path: Path) -> None:
    whole = [] if "lacks" in says or "camera is 1" in says else ["same_identity_and_camera = true"]
    path = write(tmp_path / "mine.toml", *whole, *lines)
    with pytest.raises(se.OptionError, match=says) as caught:
        se.read_protocol(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", write(tmp_path / "bad.toml", "same_camera =")):
        with pytest.raises(se.InputError, match=f"protocol {path} can't be read"):
            se.read_protocol(path)


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
    refused(run(*STORED, *CSV, "--protocol", "mine"), "unknown protocol 'mine'")

"""Tab in the shell: asked for as shells do; and by the script in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.cli import SHELLS, VARIABLE, Value, main
from support.metrics import METRICS, PARTS
from support.report import CAMERAS, CURVES
from test_config import commands

from streameval import PRESETS, PROTOCOLS, MetricOptions

BIN = Path(sys.executable).parent


def completed(words: str, shell: str = "bash") -> list[tuple[str, str]]:
    """Return (type, value) of what a line of words is completed to, at its end."""
    line = words.split(" ")
    last = {"fish": line[-1]}.get(shell, str(len(line) - 1))
    asked = {VARIABLE: f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": last}
    done = CliRunner().invoke(main, [], prog_name="streameval", env=asked)
    assert (done.exit_code, done.stderr) == (0, "")
    rows = done.stdout.removesuffix("\n").split("\n") if done.stdout.strip() else []
    if shell == "zsh":  # three lines each
        return list(zip(rows[::3], rows[1::3], strict=True))
    pairs = [row.partition(",") for row in rows]
    return [(kind, value.partition("\t")[0]) for kind, _, value in pairs]


def values(words: str, shell: str = "bash") -> list[str]:
    return [value for kind, value in completed(words, shell) if kind == "plain"]


@pytest.mark.parametrize("shell", SHELLS)
def test_names_in_every_shell(shell: str) -> None:
    assert values("streameval comp", shell) == ["compare", "compare-index", "completion"]
    assert "--metrics" in values("streameval evaluate --met", shell)
    assert values("streameval evaluate --as tor", shell) == ["torchreid"]
    assert values("streameval ledger cre", shell) == ["create"]


def test_names_are_those_that_exist() -> None:
    assert values("streameval evaluate --protocol ") == list(PROTOCOLS)
    assert values("streameval evaluate --as ") == list(PRESETS)
    assert values("streameval plot x --curve ") == [*CURVES, CAMERAS]
    assert values("streameval completion ") == list(SHELLS)
    known = [one.name for metric in METRICS for one in metric.measures(MetricOptions())]
    assert values("streameval evaluate --metrics ") == ["all", "rank", *PARTS, *known]
    assert values("streameval ledger show L --plot ") == known


def test_the_last_name_of_a_list_is_completed() -> None:
    assert values('streameval show DIR --metrics "mAP,mIN') == ["mAP,mINP"]
    assert values('streameval show DIR --metrics "mAP,nothing') == []
    assert "DIR@1|FAR=0.01,MRR" in values('streameval evaluate --metrics "DIR@1|FAR=0.01,MR')


def test_places_are_left_to_the_shell() -> None:
    for words in ("evaluate --query ", "convert ", "evaluate ", "evaluate --protocol ./mine"):
        assert completed(f"streameval {words}")[-1][0] == "file", words
    for words in ("show ", "evaluate --out ", "compare one ", "ledger show "):
        assert completed(f"streameval {words}") == [("dir", "")], words
    assert completed("streameval evaluate --memory 2") == []


def test_every_place_is_completed() -> None:
    """No option or argument that takes a path is left without completion."""
    for words, command in commands(main).items():
        context = click.Context(command)
        for param in command.params:
            if isinstance(param.type, Value) and param.type.place is not None:
                found = param.type.shell_complete(context, param, "./x")
                assert [one.type for one in found] in (["file"], ["dir"]), (words, param.name)


def test_a_tab_reads_no_config() -> None:
    assert values("streameval evaluate --config nowhere.toml --ties st") == ["stable"]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert VARIABLE in done.stdout
    assert f"{shell}_complete" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        read_only = ["--no-execute" if shell == "fish" else "-n"]
        checked = subprocess.run([program, *read_only], input=done.stdout, text=True, check=False)
        assert checked.returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("streameval evaluate --protocol cuhk", ["cuhk03", "cuhk03-torchreid"]),
        ("streameval ledger rem", ["remove"]),
        ("streameval show x --metrics '\"mAP,mIN'", ["mAP,mINP"]),
    ],
)
def test_in_bash(words: str, expected: list[str]) -> None:
    script = (
        'eval "$(streameval completion bash)"\n'
        "complete -p streameval >&2\n"
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "_streameval_completion streameval\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == expected
    assert "-F _streameval_completion streameval" in done.stderr


def test_another_shell_is_refused() -> None:
    done = CliRunner().invoke(main, ["completion", "csh"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: shell is 'csh'; known: bash, zsh, fish\n"

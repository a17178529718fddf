"""What an installation brings, and what is said of an extra that is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from documents import ROOT, blocks, is_set_up, write_example_files
from support.arrays import open_array
from support.cli import main
from support.report import plot

from streameval import OptionError

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the data files that the README's examples name."""
    write_example_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_report() -> None:
    labels = ["--query-labels", "query.csv", "--gallery-labels", "gallery.csv"]
    done = CliRunner().invoke(
        main, ["evaluate", "--distances", "distances.zarr", *labels, "--out", "result"]
    )
    assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(main, ["report", "result", "--out", "none.html"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert not Path("none.html").exists()
    raise OptionError(refused.stderr)


def open_hdf5() -> None:
    Path("features.h5").write_bytes(b"")
    open_array("features.h5")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("matplotlib", "plots", lambda: plot({}, "CMC")),
        ("jinja2", "plots", make_report),
        ("h5py", "hdf5", open_hdf5),
        ("obstore", "object-stores", lambda: open_array("s3://bucket/features.zarr")),
    ],
)
def test_the_extra_of_a_missing_package_is_named(
    package: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OptionError) as refused:
        use()
    expected = f"needs {package}, which is not installed: pip install 'streameval[{extra}]'"
    assert expected in str(refused.value)
    assert any(text.startswith(package) for text in EXTRAS[extra])


def test_all_is_every_extra_of_users() -> None:
    others = {"all", "demo", "docs", "peers", "peers-torch", "test"}
    users = ",".join(sorted(set(EXTRAS) - others))
    assert EXTRAS["all"] == [f"streameval[{users}]"]
    assert EXTRAS["all"][0] not in PROJECT["dependencies"]


FIGURES = re.compile(r"^(streameval (plot|report) .*|ls \S+\.pdf)\n", re.M)
"""Lines of the README that need the extra `plots`."""

UNREACHED = ("No matching distribution", "Connection", "Temporary failure", "Could not find")


class Environment:
    """A virtual environment with an installed copy of the checkout."""

    def __init__(self, place: Path) -> None:
        self.source, self.folder, self.bin = place / "source", place / "env", place / "env" / "bin"
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            self.source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.source)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "streameval", self.source / "streameval", ignore=ignored)
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)

    def install(self, extras: str) -> None:
        """Do what the README says; skip the test where pip has no packages to take."""
        done = subprocess.run(
            [self.bin / "python", "-m", "pip", "install", "--quiet", f"{self.source}{extras}"],
            capture_output=True,
            text=True,
        )
        if any(words in done.stderr for words in UNREACHED) and done.returncode:
            pytest.skip(f"pip can't install packages here: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command, cwd=cwd, env=environment | {"PATH": path}, capture_output=True, text=True
        )


@pytest.mark.slow
def test_fresh_environments_run_the_readme(tmp_path: Path) -> None:
    """What `pip install .` brings runs all but figures, `pip install '.[all]'` everything."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shell = [block for language, block in blocks(text) if language == "bash"]
    shell = [block.replace("\\\n", " ") for block in shell if not is_set_up(block)]
    python = "\n".join(block for language, block in blocks(text) if language == "python")
    environment = Environment(tmp_path)
    for extras, without in (("", FIGURES), ("[all]", None)):
        environment.install(extras)
        folder = tmp_path / f"folder{extras}"
        folder.mkdir()
        write_example_files(folder)
        for block in shell:
            lines = block if without is None else without.sub("", block)
            done = environment.run("bash", "-euo", "pipefail", "-c", lines, cwd=folder)
            assert done.returncode == 0, f"{lines}\n{done.stderr}"
        done = environment.run(environment.bin / "python", "-c", python, cwd=folder)
        assert done.returncode == 0, done.stderr
        for line in FIGURES.findall("".join(shell)) if without else ():
            if line[1]:
                done = environment.run("bash", "-c", line[0], cwd=folder)
                assert done.returncode == 2
                assert "pip install 'streameval[plots]'" in done.stderr

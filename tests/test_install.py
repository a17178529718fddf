"""What an installation brings, and what is said of an extra that is missing."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from documents import ROOT, write_example_files
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

"""Every block of the pages in docs/ runs, prints what the page says, and every name is told."""

from __future__ import annotations

import pkgutil
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from documents import (
    ITEMS,
    QUERIES,
    ROOT,
    WIDTH,
    blocks,
    check_printed,
    is_set_up,
    write_example_files,
    write_table,
)
from spread import with_daily
from support.cli import commands_of, main
from support.metrics import METRICS, find_measure
from support.protocols import DIFFERENCES, EQUIVALENTS

import streameval as se

sys.path.insert(0, str(ROOT / "scripts"))

import docs_hooks

DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))}
ELSEWHERE = {"cluster.md", "command-line.md", "inputs.md", "ledger.md", "lists.md", "reports.md"}
"""Pages with a test of their own: test_cluster_docs and others."""

HERE = sorted(set(PAGES) - ELSEWHERE)


def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the files that the examples name."""
    folder = tmp_path_factory.mktemp("data")
    write_example_files(folder)
    (folder / "scripts").symlink_to(ROOT / "scripts")
    return folder


@pytest.fixture
def folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a copy of these files, and go there."""
    shutil.copytree(data, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("page", with_daily(HERE, "tutorial.md", "conventions.md", "metrics.md"))
def test_blocks_run(page: str, folder: Path, run_block: Callable[[str, Path], str]) -> None:
    shared: dict[str, object] = {}
    printed = ""
    for language, block in blocks(text_of(page)):
        if language == "toml":
            named = re.match(r"# (\S+\.toml)$", block, re.M)
            (folder / (named[1] if named else "network.toml")).write_text(block)
        elif language == "python":
            exec(compile(block, page, "exec"), shared)
        elif language == "bash" and not is_set_up(block):
            printed = run_block(block, folder)
        elif language == "text" and page in ("tutorial.md", "cli.md"):
            check_printed(block, printed)
        assert language in ("bash", "python", "text", "toml")


def test_an_omission_is_of_a_line_alone() -> None:
    check_printed("a …\n…\nd", "a b\nc\nd\n")
    with pytest.raises(AssertionError):
        check_printed("a b c", "a b\nc")


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(PAGES)


def test_pages_load_nothing_from_elsewhere() -> None:
    assert "\n  font: false" in (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        assert not re.search(r"<script|<link|<img|!\[", text_of(page)), page


def told_of() -> list[str]:
    """List the names whose docstrings the pages show."""
    return [name for page in PAGES for name in re.findall(r"^::: (\S+)$", text_of(page), re.M)]


@pytest.mark.parametrize("name", told_of())
def test_what_the_pages_tell_of_is_there(name: str) -> None:
    assert (pkgutil.resolve_name(name).__doc__ or "").strip()


def test_every_public_name_is_in_the_reference() -> None:
    told = told_of()
    assert len(told) == len(set(told))
    assert {f"streameval.{name}" for name in se.__all__} <= set(told)
    for name in se.__all__:
        assert (getattr(se, name).__doc__ or "").strip(), name


def test_what_a_public_function_returns_is_in_the_reference() -> None:
    told = "\n".join(text_of(page) for page in PAGES if page.startswith("api/"))
    for name in (
        "neighbors.comparison.Comparison",
        "ledger.Snapshot",
        "ledger.trajectory.Forecast",
        "metrics.Metrics",
        "metrics.groups.CameraMatrix",
        "metrics.confidence.Confidence",
        "protocols.presets.Preset",
        "result.comparison.Comparison",
    ):
        assert f"\n::: streameval.{name}\n" in told


def test_every_part_that_is_made_is_of_use() -> None:
    marks = [name for page in PAGES for name in docs_hooks.MARK.findall(text_of(page))]
    assert sorted(marks) == sorted(docs_hooks.PARTS)


def test_made_parts_are_whole() -> None:
    metrics = docs_hooks.on_page_markdown(text_of("metrics.md"))
    for metric in METRICS:
        assert f"### `{metric.name}`" in metrics
        assert metric.formula in metrics
        assert metric.source in metrics
    conventions = docs_hooks.on_page_markdown(text_of("conventions.md"))
    for name, preset in se.PRESETS.items():
        assert f"| `{name}` | `{preset.protocol}` |" in conventions
    for name in se.PROTOCOLS:
        assert f"| `{name}` |" in conventions
        assert f"| `{name}` |" in docs_hooks.protocols_part()
    assert "a query's own image, by index" in docs_hooks.protocols_part()


def test_every_module_is_told_of() -> None:
    told = re.findall(r"^\| `(\S+)` \|", docs_hooks.modules_part(), re.M)
    there = [
        f"streameval/{path.name}{'/' if path.is_dir() else ''}"
        for path in (ROOT / "streameval").iterdir()
        if not path.name.startswith("_") and (path.is_dir() or path.suffix == ".py")
    ]
    assert sorted(told) == sorted(there)


def test_equivalents_are_metrics() -> None:
    for names in EQUIVALENTS.values():
        for own in names.values():
            name, *options = own.split()
            assert find_measure(name).name == name
            assert options[::2] in ([], ["--ap"], ["--ties"])
    shown = docs_hooks.equivalents_part()
    for tool, differences in DIFFERENCES.items():
        assert differences.keys() <= EQUIVALENTS[tool].keys()
        assert all(remark in shown for remark in differences.values())


def test_every_command_and_option_is_in_the_reference() -> None:
    text = docs_hooks.on_page_markdown(text_of("cli.md"))
    names = set()
    for name, command in docs_hooks.commands():
        names.add(name)
        part = text[text.index(f"## `{name}`\n") :]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in part, (name, parameter.opts)
                assert parameter.help, f"{name} {parameter.opts[0]} says nothing of itself"
    assert {"streameval", "streameval evaluate", "streameval ledger add-queries"} <= names


def write_more_files(folder: Path) -> None:
    """Write the further files that the examples of --help name."""
    import h5py

    rng = np.random.default_rng(1)
    held = {}
    for side in ("query", "gallery"):
        held[f"{side}_f"] = np.load(folder / f"{side}.npy")
        held[f"{side}_label"] = np.load(folder / f"{side}_ids.npy")
        held[f"{side}_cam"] = np.load(folder / f"{side}_cams.npy")
    scipy.io.savemat(folder / "pytorch_result.mat", held)
    with h5py.File(folder / "features.h5", "w") as file:
        file["gallery"] = held["gallery_f"]
    for at, part in enumerate(np.array_split(held["gallery_f"], 3)):
        np.save(folder / f"gallery-{at}.npy", part)
    for name, count in (("monday", 50), ("tuesday", 40), ("more", 3)):
        np.save(folder / f"{name}.npy", rng.standard_normal((count, WIDTH), dtype=np.float32))
        write_table(folder / f"{name}.csv", rng.integers(0, 8, count), rng.integers(0, 3, count))
    shutil.copy(folder / "tuesday.npy", folder / "moved.npy")
    (folder / "gone.txt").write_text("3\n")
    labels = se.read_label_tables("query.csv", "gallery.csv")
    features = rng.standard_normal((QUERIES + ITEMS, WIDTH))
    other = se.Features(features[:QUERIES], features[QUERIES:])
    se.evaluate(other, query=labels[0], gallery=labels[1]).save("other")


def examples_of(epilog: str) -> Iterator[list[str]]:
    for line in commands_of(epilog).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "streameval"
        yield arguments


def test_help_has_examples() -> None:
    for name, command in docs_hooks.commands():
        own, shown = name.split()[1:], list(examples_of(command.epilog or ""))
        assert shown, f"{name} --help has no examples"
        assert any(arguments[: len(own)] == own for arguments in shown), name


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")
def test_examples_of_help_run(folder: Path) -> None:
    write_more_files(folder)
    known = dict(docs_hooks.commands())
    first = ["streameval evaluate", "streameval ledger"]  # make what others read
    for name in [*first, *(one for one in known if one not in first)]:
        for arguments in examples_of(known[name].epilog or ""):
            done = CliRunner().invoke(main, arguments)
            assert done.exit_code == 0, (arguments, done.output)
    for made in ("result/summary.json", "mrep.pdf", "cmc.svg", "differences.csv", "now"):
        assert (folder / made).exists()


def test_help_shows_examples_as_they_are_written() -> None:
    shown = CliRunner().invoke(main, ["convert", "--help"]).stdout
    assert "Examples:\n    streameval convert 'gallery-*.npy' gallery.zarr" in shown
    assert "    streameval convert features.h5::gallery features.zarr\n" in shown


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        ("evalute", "evaluate"),
        ("ledger apend L", "append"),
        ("evaluate --qurey q.npy", "--query"),
        ("ledger show L --polt mAP", "--plot"),
        ("metrics --jsn", "--json"),
        ("conventions result --metrics CMC@1,mPA", "mAP"),
        ("evaluate --as torchried --distances distances.zarr", "torchreid"),
        ("evaluate --distances distances.zarr --protocol market1510", "market1501"),
    ],
)
def test_the_nearest_name_is_suggested(folder: Path, arguments: str, nearest: str) -> None:
    labels = ["--query-labels", "query.csv", "--gallery-labels", "gallery.csv"]
    if "conventions" in arguments:
        query, gallery = se.read_label_tables("query.csv", "gallery.csv")
        features = se.Features("query.npy", "gallery.npy")
        se.evaluate(features, query=query, gallery=gallery).save("result")
    own = labels if "--distances" in arguments else []
    done = CliRunner().invoke(main, [*arguments.split(), *own])
    assert done.exit_code == 2
    assert nearest in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_formulas_become_mathml() -> None:
    inline = '<p>of <span class="arithmatex">\\(r_j &lt; k\\)</span></p>'
    formula = "\\frac{1}{N} \\sum_{i \\in Q_+} [\\, r_1 \\le x \\,]"
    block = f'<div class="arithmatex">\\[\n{formula}\n\\]</div>'
    shown = docs_hooks.on_page_content(inline + block)
    assert shown.count("<math ") == 2
    assert 'display="block"' in shown
    assert "arithmatex" not in shown
    assert "<mo>&lt;</mo>" in shown or "&#x0003C;" in shown


def test_the_extra_of_the_pages_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("mkdocs") for one in project["optional-dependencies"]["docs"])

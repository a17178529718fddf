"""The report in a browser: it renders, asks for nothing, says no error, and nothing is cut off."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from demo_runs import IMAGES, RUNS, make_runs
from support.cli import main

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)
WIDTH = 1280
QUIET = (
    *("--headless", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--enable-logging=stderr"),
)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """<script>
addEventListener("load", () => {
  const page = document.documentElement, all = [...document.querySelectorAll("body *")];
  const cut = all.filter(one => getComputedStyle(one).overflowX !== "visible"
    && one.scrollWidth > one.clientWidth + 1);
  const right = Math.max(...all.map(one => one.getBoundingClientRect().right));
  const broken = [...document.images].filter(one => !one.complete || !one.naturalWidth);
  document.title = JSON.stringify({window: innerWidth, page: page.scrollWidth, right,
    cut: cut.length, broken: broken.length, images: document.images.length});
});
</script>"""
NOT_OF_A_PAGE = "not an origin"  # who asks for what the browser wants for itself

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"there is no {' or '.join(BROWSERS)} to open a report in"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a report of three runs, with pictures and a name of 300 characters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("report"))
        make_runs(Path.cwd())
        names = ("pixels", "<script>alert(1)</script>", "a name of 300 characters " + "x" * 275)
        labels = [argument for name in names for argument in ("--label", name)]
        given = ["report", *RUNS, *labels, "--images", IMAGES, "--out", "report.html"]
        done = CliRunner().invoke(main, given)
        assert done.exit_code == 0, done.output
        yield Path.cwd()


def browse(page: Path, *flags: str) -> tuple[str, list[str], list[str]]:
    """Open a page: what is printed, the messages of its console, and what it asks the network."""
    assert BROWSER is not None
    log = page.with_suffix(".netlog.json")
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    own = (f"--user-data-dir={page.parent / 'profile'}", f"--log-net-log={log}")
    window = f"--window-size={WIDTH},900"
    done = subprocess.run(
        [BROWSER, *QUIET, *root, *own, window, *flags, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console, asked_for(log)


def asked_for(log: Path) -> list[str]:
    """Return what pages have asked for, by a log of the network."""
    recorded = json.loads(log.read_text())
    kinds = recorded["constants"]["logEventTypes"]
    asked = [
        event["params"]
        for event in recorded["events"]
        if event["type"] == kinds["URL_REQUEST_START_JOB"] and "url" in event.get("params", {})
    ]
    return [
        str(one["url"])
        for one in asked
        if one.get("initiator") != NOT_OF_A_PAGE and not one["url"].startswith(("data:", "file:"))
    ]


def test_it_renders_without_a_request_or_an_error(folder: Path) -> None:
    shown, console, urls = browse(folder / "report.html", "--dump-dom")
    assert console == []
    assert urls == []
    for text in ("Evaluation of 3 runs", "Differences", "mReP against τ", "Fingerprint of query"):
        assert text in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script" not in shown


def test_the_check_would_see_a_request_and_an_error(folder: Path) -> None:
    page = folder / "asking.html"
    image = '<img src="http://127.0.0.1:9/beacon.png">'
    page.write_text(f"<!DOCTYPE html><body>{image}<script>throw Error('seen')</script></body>")
    _, console, urls = browse(page, "--dump-dom")
    assert any("seen" in line for line in console)
    assert urls == ["http://127.0.0.1:9/beacon.png"]
    policy = POLICY.search((folder / "report.html").read_text())
    assert policy is not None
    page.write_text(f"<!DOCTYPE html><head>{policy[0]}</head><body>{image}</body>")
    _, console, urls = browse(page, "--dump-dom")
    assert urls == []  # the policy of the report holds it back
    assert console


def test_nothing_is_wider_than_the_window_or_cut_off(folder: Path) -> None:
    content = (folder / "report.html").read_text()
    page = folder / "measured.html"
    page.write_text(POLICY.sub("", content).replace("</body>", f"{MEASURE}</body>"))
    shown, _, _ = browse(page, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    found = json.loads(title[1])
    assert found["window"] == WIDTH
    assert found["page"] <= WIDTH
    assert found["right"] <= WIDTH
    assert found["cut"] == 0
    assert found["broken"] == 0
    assert found["images"] > 3 * 5 * 10


def test_it_is_shown_and_printed(folder: Path) -> None:
    browse(folder / "report.html", f"--screenshot={folder / 'report.png'}")
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    browse(folder / "report.html", "--no-pdf-header-footer", f"--print-to-pdf={folder / 'a.pdf'}")
    printed = (folder / "a.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000

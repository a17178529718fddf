"""The report in a browser: it asks for nothing, says no error, and every screen shows all."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import BROWSER, BROWSERS, QUIET, Tab, open_tab
from click.testing import CliRunner
from demo_runs import IMAGES, RUNS, make_runs
from support.cli import main

WIDTHS = (400, 800, 1280, 1920)
PAPER = 703  # pixels of CSS: what a page of A4 holds between its margins
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """(() => {
  const page = document.documentElement, all = [...document.querySelectorAll("body *")];
  const style = one => getComputedStyle(one);
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(
      c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = one => {
    const [r, g, b, alpha = 1] = channels(style(one).backgroundColor);
    return alpha === 0 ? ground(one.parentElement) : [r, g, b];
  };
  const contrast = one => {
    const [a, b] = [channels(style(one).color).slice(0, 3), ground(one)].map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const texts = all.filter(one => [...one.childNodes].some(
    node => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const wider = all.filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1
    && style(one).overflowX !== "visible");
  const scrolls = wider.filter(one => style(one).overflowX === "auto");
  const outside = all.filter(one => !one.parentElement.closest(".scroll")
    && (one.getBoundingClientRect().right > innerWidth || one.getBoundingClientRect().left < 0));
  const pale = texts.filter(one => contrast(one) < 4.5);
  const broken = [...document.images].filter(one => !one.complete || !one.naturalWidth);
  const names = some => some.map(one => one.outerHTML.slice(0, 80));
  return {window: innerWidth, page: page.scrollWidth, scrolls: scrolls.length,
    cut: names(wider.filter(one => !scrolls.includes(one))), outside: names(outside),
    pale: names(pale), broken: names(broken), texts: texts.length,
    images: document.images.length, ground: light(ground(document.body))};
})()"""
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
    own = (f"--user-data-dir={page.parent / 'profile'}", f"--log-net-log={log}")
    done = subprocess.run(
        [BROWSER, *QUIET, *own, *flags, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
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


@pytest.fixture(scope="module")
def tab(folder: Path) -> Iterator[Tab]:
    with open_tab(folder / "own profile") as tab:
        yield tab


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_screen_shows_all(folder: Path, tab: Tab, width: int, theme: str) -> None:
    tab.show(folder / "report.html", width, theme)
    found = tab.evaluate(MEASURE)
    assert found["window"] == width
    assert found["page"] <= width  # nothing is scrolled sideways
    assert found["scrolls"] == 0
    assert (found["cut"], found["outside"], found["broken"]) == ([], [], [])
    assert found["pale"] == []
    assert found["texts"] > 500
    assert found["images"] > 3 * 5 * 10
    assert (found["ground"] < 0.05) == (theme == "dark")
    assert tab.picture().startswith(b"\x89PNG")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_is_white_and_shows_all(folder: Path, tab: Tab, theme: str) -> None:
    tab.show(folder / "report.html", PAPER, theme, "print")
    found = tab.evaluate(MEASURE)
    assert found["page"] <= PAPER
    assert found["scrolls"] == 0
    assert (found["cut"], found["outside"], found["pale"]) == ([], [], [])
    assert found["ground"] == 1
    printed = tab.printed()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000


def test_the_measure_would_see_what_is_wrong(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    cut = '<div style="width: 90px; overflow: hidden"><p style="width: 190px">cut</p></div>'
    pale = '<p style="color: #888; background: #fff">pale</p>'
    scrolls = '<div class="scroll" style="overflow-x: auto"><p style="width: 900px">far</p></div>'
    page.write_text(
        f'<!DOCTYPE html><body style="background: white">{cut}{pale}{scrolls}'
        '<p style="width: 700px">wide</p><img src="nothing.png"></body>'
    )
    tab.show(page, 400, "light")
    found = tab.evaluate(MEASURE)
    assert found["page"] > 400
    assert found["scrolls"] == 1
    told = {name: found[name] for name in ("cut", "outside", "pale", "broken")}
    assert {name: len(every) for name, every in told.items()} == dict.fromkeys(told, 1)

"""The report: what is in the page, what it says of runs that don't compare, and what can't harm."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from demo_runs import IMAGES, RUNS, evaluate, make_runs
from support.cli import main
from support.metrics import METRICS, Resampling
from support.report import hardest_queries, number_text, runs_of, tau_max_distance

import streameval as se

HOSTILE = (
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "👩‍🚀 & \"quotes\" 'too' {{ 7 * 7 }}",
    "x" * 300,
    "\u202etxet denrut",
)


class Page(HTMLParser):
    """What a page holds: elements by their names, and all text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [
            given
            for name, given in self.elements
            if name == tag and kind in [*(given.get("class") or "").split(), ""]
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("demo"))
        return make_runs(Path.cwd())


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def report(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments, "--resamples", "50"])


def page_of(*arguments: str) -> Page:
    done = report(*arguments, "--out", "page.html", "--overwrite")
    assert (done.exit_code, done.stderr, done.stdout) == (0, "", "page.html\n"), done.output
    return Page(Path("page.html").read_text(encoding="utf-8"))


def refused(*arguments: str) -> str:
    done = report(*arguments, "--out", "refused.html")
    assert (done.exit_code, done.stdout) == (2, ""), arguments
    assert not Path("refused.html").exists()
    return done.stderr


def test_a_page_of_three_runs() -> None:
    page = page_of(*RUNS, "--images", IMAGES)
    for run in RUNS:
        result = se.Evaluation.load(run)
        for name, value in result.metrics.scalars.items():
            shown = number_text(value, result.metrics.details[name].kind)
            assert name in page.text
            assert np.isnan(value) or shown in page.text, name
        for what in ("fingerprints", "label_fingerprints", "versions"):
            assert all(one in page.text for one in result.provenance[what].values())
        assert f"--out {run}" in page.text
        assert result.provenance["started"] in page.text
    for title in ("Differences", "Curves", "Hardest queries", "Options", "Data", "Provenance"):
        assert title in page.text
    assert len(page.named("figure", "plot")) == 8 + 3 * 2  # curves, and heat maps of each run
    assert len(page.named("figure", "query")) == 3 * 5
    kinds = [len(page.named("figure", kind)) for kind in ("match", "mismatch", "ignored")]
    assert sum(kinds) >= 3 * 5 * 10
    assert min(kinds) > 0
    assert not page.named("span", "placeholder")


@pytest.mark.slow
def test_nothing_is_from_elsewhere() -> None:
    page = page_of(*RUNS, "--images", IMAGES)
    allowed = {"class", "lang", "charset", "http-equiv", "content", "name", "title", "alt", "src"}
    allowed |= {"scope", "colspan", "role", "aria-label", "aria-hidden", "viewbox", "id"}
    allowed |= {"x1", "y1", "x2", "y2", "cx", "cy", "r", "stroke", "stroke-dasharray"}
    allowed |= {"data-head"}
    for tag, given in page.elements:
        assert tag not in {"script", "link", "iframe", "object", "embed", "a", "form", "base"}
        assert set(given) <= allowed, (tag, given)
        assert tag != "img" or str(given["src"]).startswith("data:image/")
    (policy,) = [one for one in page.named("meta") if one.get("http-equiv")]
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in str(policy["content"])
    styles = re.findall(r"<style>.*?</style>", Path("page.html").read_text(), re.DOTALL)
    assert "url(" not in "".join(styles)
    assert "@import" not in "".join(styles)


@pytest.mark.slow
def test_the_same_runs_are_the_same_page() -> None:
    page_of(*RUNS, "--images", IMAGES)
    first = Path("page.html").read_bytes()
    page_of(*RUNS, "--images", IMAGES)
    assert Path("page.html").read_bytes() == first


@pytest.mark.slow
def test_no_queries_have_no_pictures() -> None:
    assert not page_of("pixels", "--images", IMAGES, "--queries", "0").named("figure", "query")


@pytest.mark.slow
def test_images_of_a_column_are_those_of_a_template() -> None:
    sources = [
        [one["src"] for one in page_of("pixels", "--images", how).named("img")]
        for how in (IMAGES, "path", "{path}", "images/{side}/{row:06d}.png")
    ]
    assert all(one == sources[0] for one in sources)


@pytest.mark.slow
def test_identities_beside_a_column_are_what_they_were_evaluated_as() -> None:
    page = page_of("pixels", "--images", "{path}{id:+05d}", "--queries", "1")
    reasons = [str(one["title"]) for one in page.named("span", "placeholder")]
    assert reasons
    assert all(re.fullmatch(r".*\.png\+000\d is not there", one) for one in reasons)


@pytest.mark.slow
def test_best_values_are_marked_in_the_right_direction() -> None:
    page_of(*RUNS)
    text = Path("page.html").read_text()
    results = [se.Evaluation.load(run) for run in RUNS]
    for name, choose in (("mAP", max), ("MFR", min), ("EER", min), ("tau_max", None)):
        head = rf'<th scope="row">{name}(?:&nbsp;|<).*?</tr>'
        row = re.search(head, text, re.DOTALL)
        assert row is not None
        marked = ["best" in cell for cell in re.findall(r'<td [^>]*class="([^"]*)"', row[0])]
        values = [one[name] for one in results]
        assert marked == [choose is not None and one == choose(values) for one in values], name


def test_every_metric_says_which_way_it_is_better() -> None:
    lower = {one.name.partition("@")[0] for one in METRICS if one.better == "lower"}
    errors = {"FNIR", "FPIR|tau={tau}", "FNMR|FMR={f}", "EER", "FMR", "FNMR"}
    assert lower == {"MedR", "MFR", *errors}
    assert [one.name for one in METRICS if one.better == "neither"] == ["tau_max"]


@pytest.mark.slow
def test_runs_that_differ_are_not_compared() -> None:
    evaluate("pixels", "lenient", "--ties", "optimistic", "--overwrite")
    page = page_of("pixels", "lenient", "--images", IMAGES)
    assert "The runs are not compared" in page.text
    assert "differ in options: ties pessimistic and optimistic" in page.text
    assert "Differences" not in page.text
    assert not page.named("td", "best")
    assert len(page.named("figure", "query")) == 2 * 5
    assert page.named("td", "differs")
    despite = page_of("pixels", "lenient", "--despite", "options")
    assert "Differences" in despite.text
    assert "differ in options" in despite.text


def test_hardest_queries_have_the_lowest_precision() -> None:
    runs = runs_of({run: run for run in RUNS}, Resampling(resamples=20))
    mean = np.mean([one.per_query["AP"] for one in runs.results.values()], axis=0)
    chosen = hardest_queries(runs.results, 4)
    np.testing.assert_array_equal(mean[chosen], np.sort(mean)[:4])
    name, result = next(iter(runs.results.items()))
    precision = result.per_query["AP"]
    assert precision[hardest_queries({name: result}, 1)[0]] == np.nanmin(precision)


@pytest.mark.slow
def test_the_line_is_where_tau_max_is() -> None:
    page_of("pixels", "--images", IMAGES, "--queries", "20", "--top", "60")
    text = Path("page.html").read_text()
    limit = tau_max_distance(se.Evaluation.load("pixels"))
    assert limit is not None
    lists = re.findall(r'<div class="pictures">.*?</div>', text, re.DOTALL)
    lines = 0
    for one in lists:
        before, line, after = one.partition('<span class="line">')
        lines += bool(line)
        for side, within in ((before, True), (after, False)):
            for shown in re.findall(r'<span title="(-?[\d.]+(?:e-\d+)?)">', side):
                assert (float(shown) <= limit * 1.001) if within else float(shown) >= limit * 0.999
    assert lines > 0


@pytest.mark.slow
def test_hostile_texts_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for side, count in (("query", 10), ("gallery", 40)):
        np.save(f"x_{side}.npy", rng.random((count, 4)))
        ids = [HOSTILE[at % len(HOSTILE)] for at in range(count)]
        rows = "".join(
            '"{}",{}\n'.format(one.replace('"', '""'), at % 3) for at, one in enumerate(ids)
        )
        Path(f"{side}.csv").write_text("id,cam\n" + rows, encoding="utf-8")
    Path("images").mkdir()
    Path("images/1.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    Path("images/2.png").mkdir()
    Path("images/3.png").symlink_to("nowhere")
    evaluate("x", "one")
    evaluate("x", "two")
    names = [argument for name in HOSTILE[:2] for argument in ("--label", name)]
    for images in ("images/{id}/{row}.png", "images/{row}.png", "{id}"):
        page = page_of("one", "two", *names, "--images", images)
        assert {tag for tag, _ in page.elements}.isdisjoint({"script", "a", "link"})
        assert len(page.named("span", "placeholder")) == len(page.named("figure", "picture"))
        shown = page.text + " ".join(str(given.get("title")) for _, given in page.elements)
        assert "<script>alert(1)</script>" in shown
        assert "{{ 7 * 7 }}" in shown
        assert "x" * 300 in shown
        assert "\u202e" not in shown
    page_of("one", "--images", "images/{id}/{row}.png")
    assert "leads out of images" in Path("page.html").read_text()
    for row in range(40):  # a link from within the folder to outside of it
        Path(f"images/link{row}.png").symlink_to(Path("page.html").absolute())
    page_of("one", "--images", "images/link{row}.png")
    assert "link0.png leads out of images" in Path("page.html").read_text()
    Path("linked").symlink_to("images")  # the folder itself may be a link
    page_of("one", "--images", "linked/{row}.png")
    assert "leads out" not in Path("page.html").read_text()


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    for arguments, words in (
        ((), "no result"),
        (("pixels", "pixels"), "--label"),
        (("pixels", "--label", "a", "--label", "b"), "one each"),
        (("nowhere",), "not a saved result"),
        (("pixels", "noisy", "--despite", "all"), "known: protocol"),
        (("pixels", "--images", "images/{row"), "expected a column"),
        (("pixels", "--images", "{row.__class__}"), "expected a column"),
        (("pixels", "--images", "images/{id:06x!}.png"), "expected a column"),
        (("pixels", "--images", "images/{key}.png"), "has no column key"),
        (("pixels", "--images", "images/{nothing}.png"), "no column nothing"),
    ):
        assert words in refused(*arguments), arguments
    done = report("pixels", "--out", "page.pdf")
    assert "no .html" in done.stderr
    page_of("pixels")
    assert "--overwrite" in report("pixels", "--out", "page.html").stderr
    shutil.copytree("pixels", tmp_path / "moved")
    shutil.move("pixels_gallery.npy", "elsewhere.npy")
    try:
        said = refused(str(tmp_path / "moved"), "--images", IMAGES)
    finally:
        shutil.move("elsewhere.npy", "pixels_gallery.npy")
    assert "pixels_gallery.npy" in said
    assert "put back" in said


def test_what_python_made_has_a_page_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = [se.Labels(id=rng.integers(0, 9, count)) for count in (20, 50)]
    result = se.evaluate(
        se.Distances(rng.random((20, 50))),
        query=labels[0],
        gallery=labels[1],
        protocol="no-camera",
    )
    result.save(tmp_path / "plain")
    page = page_of(str(tmp_path / "plain"))
    assert "not recorded: evaluated from Python" in page.text
    assert "Not drawn" in page.text  # no histogram was asked for
    said = refused(str(tmp_path / "plain"), "--images", IMAGES)
    assert "does not say where its labels are" in said


@pytest.mark.slow
def test_findings_of_the_audit_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pixels_query.npy", "pixels_gallery.npy", "query.csv", "gallery.csv"):
        shutil.copy(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = Path("query.csv").read_text().replace(",2,images", ",7,images")
    Path("query.csv").write_text(rows)
    evaluate("pixels", "odd")
    (finding,) = se.Evaluation.load("odd").provenance["audit"]
    assert finding["name"] == "camera-of-one-side"
    assert finding["message"] in page_of("odd").text

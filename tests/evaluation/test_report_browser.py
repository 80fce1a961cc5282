"""The page about a backtest in a real browser: quiet, whole, narrow, dark, on paper."""

import shutil
from dataclasses import replace

import pytest
from evaluation.browser import opened_browser
from evaluation.report_page import backtest_of, panel_of
from forecast import tiny

from forecaster.evaluation.report import render_report
from forecaster.evaluation.report_data import ReportContext
from forecaster.panel.findings import Finding

SECTIONS = [
    *("verdict", "scores", "series", "leads", "calibration", "residuals"),
    *("model", "audit", "config", "environment"),
]
LONG = "a_series_with_a_name_that_no_telephone_shows_in_one_line_" * 3
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where the page of a backtest lies whose names are long and nasty."""
    names = [f"{LONG}{n}" for n in range(6)] + ["<script>document.title='broken'</script>", "'\"&"]
    finding = Finding("warning", "gaps", f"gaps in {LONG}", "fill them", LONG, "row 7", 3)
    origin = ReportContext(
        tiny.plain_model().artifact, f"forecaster backtest {LONG}", "f00d", (finding,)
    )
    backtest = backtest_of(panel_of(8, 120, names=names), windows=10)
    path = tmp_path_factory.mktemp("page") / "report.html"
    replace(backtest, report_context=origin).report(path)
    assert LONG in render_report(backtest)
    return path.as_uri()


@pytest.fixture(scope="module")
def page():
    """A tab that tells what goes wrong."""
    with opened_browser(CHROMIUM) as tab:
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        yield tab


def _open(page, address, width=1200, scheme="light", media=""):
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=width < 500,
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", media=media, features=features)
    page.events.clear()
    page.open(address)
    page.wait("document.readyState == 'complete' && !!document.getElementById('environment')")


def test_the_page_opens_without_a_complaint_and_asks_for_nothing_else(page, address):
    _open(page, address)
    complaints = [
        event
        for event in page.events
        if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    ]
    assert not complaints
    asked = [
        event["params"]["request"]["url"]
        for event in page.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert set(asked) <= {address}
    assert page.run("document.title").startswith("Backtest")
    assert page.run("document.compatMode") == "CSS1Compat"


def test_all_sections_are_seen_and_every_picture_has_a_size(page, address):
    _open(page, address)
    assert page.run("[...document.querySelectorAll('section')].map(s => s.id).join()") == ",".join(
        SECTIONS
    )
    sizes = page.run(
        "[...document.querySelectorAll('section')].map(s => s.getBoundingClientRect().height)"
    )
    assert all(size > 60 for size in sizes)
    small = page.run(
        "[...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width < 200"
        " || s.getBoundingClientRect().height < 100).length"
    )
    assert small == 0 and page.run("document.querySelectorAll('figure svg').length") == 6


@pytest.mark.parametrize("width", [320, 360, 768, 1200])
def test_no_screen_has_to_be_scrolled_sideways(page, address, width):
    _open(page, address, width)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("window.innerWidth") == width
    wide = "[...document.querySelectorAll('figure, .wide, pre')]"
    assert page.run(f"{wide}.every(box => box.getBoundingClientRect().right <= {width})")
    if width == 1200:  # nor a table in its own box
        tables = "[...document.querySelectorAll('#scores .wide, #calibration .wide')]"
        assert page.run(f"{tables}.every(box => box.scrollWidth <= box.clientWidth)")


def test_on_paper_everything_is_shown(page, address):
    _open(page, address, media="print")
    assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    # Collapsed on the screen, the config is open on paper.
    assert page.run("document.querySelector('#config pre').getBoundingClientRect().height") > 500

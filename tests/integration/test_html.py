"""The page in a real browser with the network off: charts with marks, zoom and hover, nothing obeys the trace."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import Browser, chromium

from netprof.analysis import analyze
from netprof.trace import TraceReader
from netprof.views.html import render

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "analysis"))
from support.synthetic import ELEMENTS, MS, START_NS, Job

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1><b>bold</b>"
CHARTS = {
    "anatomy-plot": 10,
    "run-plot": 40,
    "spread-plot": 3,
    "bandwidth-plot": 4,
    "flows-plot": 4,
    "scaling-plot": 4,
    "whatif-time-plot": 4,
}
STRETCH = "const d = document.getElementById('tracks-plot').dataset; return [Number(d.from), Number(d.to)]"
GUTTER = 148


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Callable[..., Browser]:
    def make(job: Job, *, dark: bool = False) -> Browser:
        page = tmp_path / "page.html"
        page.write_text(render(analyze(TraceReader(job.write(tmp_path / "t.netprof")))))
        browser.asked_for()
        browser.said()
        browser.open(page, dark=dark)
        return browser

    return make


def plot(browser: Browser) -> Any:
    """Bring the timeline into view and return its element."""
    element = browser.driver.find_element(By.ID, "tracks-plot")
    browser.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    return element


def at(browser: Browser, x: float, y: float) -> ActionChains:
    """Return a pointer that goes to a place of the timeline, from its upper left corner."""
    element = plot(browser)
    box = element.rect
    pointer = ActionChains(browser.driver, duration=0)
    return pointer.move_to_element_with_offset(element, round(x - box["width"] / 2), round(y - box["height"] / 2))


def x_of(browser: Browser, ms: float) -> float:
    """Return where a time, in ms after the first iteration's begin, is on the timeline."""
    return float(browser.script("return Main.tracks.scale.x(arguments[0])", (ms + 10) * 1000))


def tip(browser: Browser) -> str:
    return str(browser.script("const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent"))


def settle(browser: Browser) -> None:
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def lane_y(browser: Browser, kind: str, index: int = 0) -> float:
    script = (
        "return Main.tracks.lanes.filter((l) => l.lane instanceof eval(arguments[0])).map((l) => l.y)[arguments[1]]"
    )
    return float(browser.script(script.replace("eval(arguments[0])", kind).replace("arguments[1]", str(index))))


@pytest.mark.core
def test_it_loads_with_the_network_off_and_asks_for_nothing(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    assert browser.said() == []
    # chrome: are the browser's own pictures, in its input fields; no page may ask for those.
    asked = [url for url in browser.asked_for() if not url.startswith(("data:", "blob:", "chrome:"))]
    assert asked == [browser.driver.current_url]
    # The test's own eye works: the policy stops what would leave, and the console says so.
    browser.script("window.asked = 'waiting'; fetch('https://example.com/').catch(() => { window.asked = 'refused'; })")
    browser.wait("return window.asked === 'refused'", "the policy let a request out")
    assert any("Content Security Policy" in line for line in browser.said())


@pytest.mark.core
def test_every_chart_is_there_and_has_marks(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    for chart, least in CHARTS.items():
        marks = browser.script(
            "return document.querySelectorAll(`#${arguments[0]} :is(.point, .points path, .js-line)`).length", chart
        )
        assert marks >= least, f"{chart} has {marks} marks"


def test_what_is_printed_of_the_timeline_is_a_picture_of_it(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    drawn = browser.script("return [Main.tracks.canvas.width, document.querySelector('.still').naturalWidth]")
    assert drawn[0] == drawn[1] > 100
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.script("return getComputedStyle(document.querySelector('.still')).display") == "block"
    assert browser.script("return getComputedStyle(Main.tracks.canvas).display") == "none"


def test_the_tracks_draw_what_was_on_the_wire(opened: Callable[..., Browser]) -> None:
    """Column by column against the job: rank 0 sends from 50 to 130 ms of every 200, and receives nothing at all."""
    job = Job().fill()
    job.wire = [row for row in job.wire if row[:2] != (1, 1)]
    browser = opened(job)
    colour = (
        "const [x, y] = arguments, c = document.getElementById('tracks-canvas');"
        "return [...c.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3)"
    )
    browser.script("Main.tracks.reveal(10000, 400000)")
    settle(browser)
    y, height = lane_y(browser, "LinkLane"), float(browser.script("return Main.tracks.links[0].height"))
    ground = browser.script(colour, x_of(browser, 20), y + height * 0.4)
    for ms in range(5, 400, 10):
        sent, received = (browser.script(colour, x_of(browser, ms), y + height * part) for part in (0.25, 0.75))
        assert (sent != ground) == (50 < ms % 200 < 130), f"at {ms} ms"
        assert received == ground, f"at {ms} ms"


def test_a_drag_zooms_in_and_a_double_click_out(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    whole = browser.script(STRETCH)
    assert whole[0] == 0
    begin, end = x_of(browser, 200), x_of(browser, 400)
    at(browser, begin, 150).click_and_hold().move_by_offset(round(end - begin), 0).release().perform()
    settle(browser)
    shown = browser.script(STRETCH)
    assert shown == pytest.approx([210_000, 410_000], abs=3 * (whole[1] - whole[0]) / 1100)
    at(browser, 600, 150).double_click().perform()
    settle(browser)
    wider = browser.script(STRETCH)
    assert wider[1] - wider[0] == pytest.approx(4 * (shown[1] - shown[0]))


def test_keys_and_buttons_go_from_the_whole_run_to_one_bin(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    element = plot(browser)
    for _ in range(20):
        element.send_keys("+")
    settle(browser)
    begin, end = browser.script(STRETCH)
    assert end - begin == pytest.approx(1000)  # one bin of 1 ms
    browser.driver.find_element(By.CSS_SELECTOR, "[data-act=one]").click()
    settle(browser)
    begin, end = browser.script(STRETCH)
    assert end - begin == pytest.approx(200_000 * 1.12)
    element.send_keys("n")
    settle(browser)
    assert browser.script(STRETCH)[0] == pytest.approx(begin + 200_000)
    element.send_keys("0")
    settle(browser)
    assert browser.script(STRETCH) == [0, 2_210_000]


def test_hovering_says_what_is_there(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    browser.script("Main.tracks.reveal(210000, 200000)")
    settle(browser)
    at(browser, x_of(browser, 300), lane_y(browser, "LinkLane") + 30).perform()
    assert "sent 1.00 Gbit/s (100.0 %)" in tip(browser)
    at(browser, x_of(browser, 220), lane_y(browser, "LinkLane") + 30).perform()
    assert "sent 0 bit/s (0.0 %)" in tip(browser)
    at(browser, x_of(browser, 300), lane_y(browser, "PhaseLane") + 10).perform()
    assert "exposed communication: 98.0 ms" in tip(browser)
    assert "iteration 2 of 10: 200.0 ms" in tip(browser)
    at(browser, x_of(browser, 260), lane_y(browser, "BucketLane") + 5).perform()
    assert f"bucket 1: {ELEMENTS[0] * 4 / 1e6:.2f} MB" in tip(browser)
    assert "collective took 59.0 ms" in tip(browser)
    at(browser, x_of(browser, 240), lane_y(browser, "SpanLane") + 5).perform()
    assert "gradients waiting" in tip(browser)
    at(browser, 20, 20).perform()
    assert tip(browser) == ""


def test_hovering_over_a_chart_says_what_is_there(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    bar = browser.driver.find_element(By.CSS_SELECTOR, "#flows-plot .point")
    browser.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", bar)
    ActionChains(browser.driver).move_to_element(bar).perform()
    browser.wait("return !Plot.tip().hidden", "no hover label")
    assert "110.0 MB sent over eth" in browser.script("return Plot.tip().textContent")


def test_the_page_is_small_and_drawn_within_a_second(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    assert browser.script("return document.documentElement.outerHTML.length") < 1_000_000
    timing = "const t = performance.timing; return t.domContentLoadedEventEnd - t.navigationStart"
    assert browser.script(timing) < 1000


@pytest.mark.core
def test_a_bar_ends_within_its_axes(opened: Callable[..., Browser]) -> None:
    """Two steps that differ make a few wide bins, whose bars covered the numbers of the axis beside them."""
    browser = opened(Job(iterations=20).fill())
    browser.script(
        "const d = Main.data.distributions; d.iteration = { edges: [0.1, 0.15, 0.2], counts: [[9, 11], [12, 8]] };"
        "d.exposed = { edges: [0.0995, 0.1005], counts: [[20], [20]] }; Main.draw();"
    )
    reach = browser.script(
        "return [...document.querySelectorAll('#spread-plot rect.point')].map(r => [+r.getAttribute('x'),"
        " +r.getAttribute('x') + +r.getAttribute('width')])"
    )
    width = browser.script("return document.getElementById('spread-plot').clientWidth")
    assert len(reach) > 4
    assert min(low for low, _ in reach) >= 44, "the left margin is the axis's"
    assert max(high for _, high in reach) <= width - 16


def test_an_outlier_flattens_no_chart(opened: Callable[..., Browser]) -> None:
    """One step takes forty times as long as the others: these keep most of the height, and it is marked."""
    browser = opened(Job(iterations=60).fill())
    browser.script("const it = Main.data.iterations[0]; it.duration_s[3] *= 40; it.exposed_s[3] *= 40; Main.draw();")
    heights = browser.script(
        "const box = document.querySelector('#run-plot svg').getBoundingClientRect();"
        "return [...document.querySelectorAll('#run-plot circle.point')]"
        ".map(c => (box.bottom - c.getBoundingClientRect().bottom) / box.height)"
    )
    assert sorted(heights)[len(heights) // 2] > 0.4
    assert browser.script("return document.querySelectorAll('#run-plot .beyond').length") >= 1


def test_the_charts_are_reached_with_the_keyboard(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    browser.script("document.getElementById('flows-plot').focus()")
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert "sent over eth" in browser.script("return Plot.tip().textContent")
    at(browser, x_of(browser, 300), 150).click().perform()
    before = browser.script(STRETCH)
    ActionChains(browser.driver).send_keys("+").perform()
    settle(browser)
    after = browser.script(STRETCH)
    assert after[1] - after[0] < before[1] - before[0], "keys go on working after a click"


def test_at_the_width_of_a_telephone_nothing_is_cut(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    browser.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    try:
        settle(browser)
        assert browser.script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")


def test_one_busy_bin_is_seen_in_a_long_silence(opened: Callable[..., Browser]) -> None:
    job = Job(iterations=1).fill()
    burst_ms = 3_000_000
    job.wire.append((1, 0, START_NS + burst_ms * MS, 120_000, 125_000))
    job.changes["stopped_ns"] = START_NS + 2 * burst_ms * MS
    browser = opened(job)
    peak = browser.script(
        "const t = Main.tracks, s = t.scale, p = t.links[0].directions[0][1];"
        "const from = s.us(Math.floor(s.x(arguments[0] * 1000))); return p.over(from, from + s.pixel, s.pixel)",
        burst_ms + 10,
    )
    assert peak[1] == pytest.approx(1e9, rel=1e-3)
    assert peak[0] < 1e6
    at(browser, x_of(browser, burst_ms), lane_y(browser, "LinkLane") + 30).perform()
    assert "peak 1.00 Gbit/s" in tip(browser)


def test_the_slowest_iteration_is_one_click_away(opened: Callable[..., Browser]) -> None:
    job = Job(ranks=1, iterations=0, changes={"stopped_ns": START_NS + 2000 * MS})
    begin_ms = 0
    for length in (200, 200, 500, 200, 300, 200):
        job.step(0, START_NS + begin_ms * MS)
        begin_ms += length
    browser = opened(job)
    button = browser.driver.find_element(By.CSS_SELECTOR, "button.jump")
    browser.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    settle(browser)
    begin, end = browser.script(STRETCH)
    assert [begin, end] == pytest.approx([410_000 - 30_000, 910_000 + 30_000])


@pytest.mark.core
@pytest.mark.parametrize("place", ["targets", "device", "address", "host"])
def test_a_hostile_name_stays_text(place: str, opened: Callable[..., Browser]) -> None:
    job = Job().fill()
    if place == "targets":
        job.changes["targets"] = tuple(dataclasses.replace(t, command=HOSTILE) for t in job.meta().targets)
    elif place == "host":
        job.changes["host"] = HOSTILE
    else:
        column = "local_addr" if place == "address" else "device"
        job.flow_changes[column] = [HOSTILE] * 2
    browser = opened(job)
    at(browser, x_of(browser, 300), lane_y(browser, "LinkLane") + 30).perform()
    bar = browser.driver.find_element(By.CSS_SELECTOR, "#flows-plot .point")
    browser.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", bar)
    ActionChains(browser.driver).move_to_element(bar).perform()
    assert browser.script("return window.pwned") is None
    assert browser.script("return document.querySelectorAll('img:not(.still), main b b').length") == 0
    assert browser.script("return [...document.querySelectorAll('b')].some((e) => e.textContent === 'bold')") is False
    drawn = "return [...document.querySelectorAll('svg tspan, svg b')].some((e) => e.textContent === 'bold')"
    assert browser.script(drawn) is False
    browser.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert "<img src=x onerror=window.pwned=1>" in browser.script("return document.body.innerText")
    assert browser.said() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_light_and_dark_follow_the_reader(dark: bool, opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill(), dark=dark)
    ground = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    ink = "return getComputedStyle(document.querySelector('#run-plot svg text')).fill.match(/\\d+/g).map(Number)[0]"
    assert (browser.script(ground) < 60) == dark
    assert (browser.script(ink) > 130) == dark
    browser.driver.find_element(By.ID, "theme").click()
    assert (browser.script(ground) < 60) != dark
    browser.wait(f"{ink.replace('return', 'return (')} > 130) !== {str(dark).lower()}", "the charts kept the old theme")
    assert browser.said() == []


@pytest.mark.parametrize("lost", ["marks", "wire"])
def test_a_trace_with_half_of_it_missing_still_makes_a_page(lost: str, opened: Callable[..., Browser]) -> None:
    job = Job(rate_bps=None, world_size=None).fill()
    getattr(job, lost).clear()
    browser = opened(job)
    assert browser.said() == []
    assert browser.script("return document.getElementById('tracks-note').textContent") == ""


def test_a_narrow_window_does_not_scroll_sideways(opened: Callable[..., Browser]) -> None:
    browser = opened(Job().fill())
    browser.command("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=False)
    try:
        browser.wait("return document.documentElement.scrollWidth <= 420", "the page is wider than its window")
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")

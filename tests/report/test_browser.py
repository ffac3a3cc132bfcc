"""The report in a real browser, opened from the disk, with the network cut off."""

from __future__ import annotations

import json
import shlex

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from geosprint.comparison.results import Comparison
from geosprint.integrations.export import export
from geosprint.schedule import StepSchedule

pytestmark = pytest.mark.slow


AS_OPENED = """
state.hidden = {};
delete root.dataset.theme;
find("#slider").value = "0";
chooseColumn(String(data.column));
chooseAxis("t");
drawAll();
"""


@pytest.fixture
def page(browser, compared):
    """The report at a usual size, as it is when it opens; opening it anew for every test would take a minute."""
    prefer(browser, "light")
    resize(browser, 1200, 900)
    if browser.current_url == (compared / "report.html").as_uri():
        browser.execute_script(AS_OPENED)
    else:
        opened(browser, compared / "report.html")
    return browser


def opened(browser, path):
    browser.get(path.as_uri())
    wait(browser, "return document.documentElement.dataset.ready === 'yes'")


def wait(browser, script, *arguments):
    WebDriverWait(browser, 60, poll_frequency=0.1).until(lambda b: b.execute_script(script, *arguments))


def prefer(browser, theme):
    """What the system asks for: a theme, and no motion, so that nothing moves away while a test aims at it."""
    wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def resize(browser, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def traces(browser, chart):
    """Name and visibility of what a chart holds, from Plotly itself."""
    script = "return document.getElementById(arguments[0]).data.map((trace) => [trace.name, trace.visible])"
    return dict(browser.execute_script(script, f"chart-{chart}"))


def into_view(browser, element):
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)


def pasted(browser):
    """What the clipboard holds, as a user would find out."""
    browser.execute_script(
        "const area = document.createElement('textarea'); area.id = 'paste'; document.body.append(area); area.focus()"
    )
    area = find(browser, "#paste")
    area.send_keys(Keys.CONTROL, "v")
    text = area.get_property("value")
    browser.execute_script("arguments[0].remove()", area)
    return text


def test_the_page_opens_from_the_disk_without_errors_and_asks_for_nothing_else(page, compared):
    charts = ["ranking", "curves", "steps", "retention", "densities", "halves", "oracle", "counts"]
    for chart in charts:
        assert traces(page, chart), chart
        assert find(page, f"#chart-{chart} svg").size["height"] > 100
    assert page.get_log("browser") == []
    assert (
        page.execute_script(
            "return performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:'))"
        )
        == []
    )
    told = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    asked = {one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {(compared / "report.html").as_uri()}


def test_the_policy_of_the_page_forbids_requests(page):
    script = "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('went'), () => done('refused'))"
    assert page.execute_async_script(script) == "refused"
    assert any("Content Security Policy" in line["message"] for line in page.get_log("browser"))


def test_pressing_a_name_shows_and_hides_its_curve(page):
    assert traces(page, "curves")["uniform-linspace"] is not traces(page, "curves")["geosprint"]
    button = find(page, "#legend-curves button[data-name=geosprint]")
    into_view(page, button)
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert traces(page, "curves")["geosprint"] is False
    again = find(page, "#legend-curves button[data-name=geosprint]")
    assert again.get_attribute("aria-pressed") == "false"
    assert page.switch_to.active_element == again  # the focus is not lost, so the keyboard goes on from here
    again.send_keys(Keys.SPACE)
    assert traces(page, "curves")["geosprint"] is True


def test_all_curves_can_be_shown_at_once(page):
    button = find(page, "#all-curves")
    into_view(page, button)
    button.click()
    assert set(traces(page, "curves").values()) == {True}
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert False in traces(page, "curves").values()


def test_the_mouse_over_a_point_tells_its_value_and_interval(page):
    chart = find(page, "#chart-ranking")
    into_view(page, chart)
    point = find_all(page, "#chart-ranking .scatterlayer .trace .point")[0]
    ActionChains(page).move_to_element(point).perform()
    wait(page, "return document.querySelector('#chart-ranking .hoverlayer .hovertext') !== null")
    said = find(page, "#chart-ranking .hoverlayer").text
    first = page.execute_script("return data.columns[state.column].entries[0]")
    assert first["name"] in said
    assert f"{first['error'][0]:.4g}" in said
    assert "95 % interval" in said


def test_the_axis_can_be_switched_everywhere_at_once(page):
    def axis():
        script = "return arguments[0].map((id) => document.getElementById(id).layout.xaxis)"
        found = page.execute_script(script, ["chart-steps", "chart-retention"])
        return [[one["title"]["text"], one["type"]] for one in found]

    def places():
        return page.execute_script("return [...document.getElementById('chart-steps').data[0].x]")

    assert [title.split()[0] for title, _ in axis()] == ["time", "time"]
    entry = page.execute_script("return data.columns[state.column].entries[0].places")
    assert places() == entry["t"]
    radio = find(page, "#steps input[value=sigma]")
    into_view(page, radio)
    page.execute_script("arguments[0].focus()", find(page, "#steps input[value=t]"))
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert axis() == [["sigma   (noise → clean)", "log"]] * 2
    assert places() == entry["sigma"]
    assert find(page, "#bends input[value=sigma]").is_selected()
    find(page, "#bends input[value=logsnr] + span").click()
    assert places() == entry["logsnr"]
    assert find(page, "#steps input[value=logsnr]").is_selected()


def test_another_column_is_shown_in_all_parts(page):
    picks = find_all(page, ".pick-column")
    assert len(picks) == 3
    assert {Select(pick).first_selected_option.text for pick in picks} == {"6 steps of ddim"}
    into_view(page, picks[0])
    Select(picks[0]).select_by_visible_text("4 steps of ddim")
    assert {Select(pick).first_selected_option.text for pick in picks} == {"4 steps of ddim"}
    shown = page.execute_script("return [...document.getElementById('chart-steps').data[0].x].length")
    assert shown == 4


def test_copying_works(page, compared):
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    copy_and_check(page)


def test_copying_works_where_the_clipboard_is_out_of_reach(page):
    page.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    copy_and_check(page)
    page.execute_script("delete navigator.clipboard.writeText")


def copy_and_check(page):
    """The text on the clipboard is what `geosprint export` would print of the schedule that is chosen."""
    pick = find(page, "#pick-copyable")
    into_view(page, pick)
    Select(pick).select_by_visible_text("6 steps of ddim: karras")
    places = page.execute_script(
        "return data.columns.find((c) => c.label === '6 steps of ddim').entries.find((e) => e.name === 'karras').places"
    )
    times = places["t"]
    for tool in ("sdcpp", "diffusers"):
        button = find(page, f"button[data-copies=text-{tool}]")
        into_view(page, button)
        page.execute_script(
            "const [button] = arguments; button.said = []; find('#copied').textContent = '';"
            "new MutationObserver(() => button.said.push(button.textContent)).observe(button, { childList: true })",
            button,
        )
        button.click()
        wait(page, "return arguments[0].said.includes('Copied')", button)  # the button says so for two seconds alone
        assert "Copied" in find(page, "#copied").text
        text = pasted(page)
        assert text.strip() == find(page, f"#text-{tool}").get_property("textContent").strip()
        if tool == "diffusers":
            assert f"timesteps = [{', '.join(f'{t:g}' for t in times)}]" in text


def test_the_texts_are_those_of_the_export_verb(page, compared):
    texts = page.execute_script(
        "return data.copyables.find((one) => one.name.endsWith('4 steps of ddim: geosprint')).texts"
    )
    kept = Comparison.load(compared / "summary.json")
    schedule = StepSchedule.at(kept.cell("ddim", "geosprint", 4).timesteps, kept.origin.noise, {"solver": "ddim"})
    for tool in ("comfyui", "a1111", "sdcpp", "kdiffusion", "json"):
        assert texts[tool] == export(schedule, tool)


def test_the_slider_moves_by_keyboard_through_the_schedules(page):
    slider = find(page, "#slider")
    into_view(page, slider)
    names = page.execute_script("return data.columns[state.column].entries.map((e) => e.name)")
    assert find(page, "#picture-name").text.startswith(names[0])
    before = find(page, "#picture").get_attribute("src")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert find(page, "#picture-name").text.startswith(names[1])
    assert slider.get_attribute("aria-valuetext") == names[1]
    assert find(page, "#picture").get_attribute("src") != before
    slider.send_keys(Keys.END)
    assert find(page, "#picture-name").text.startswith(names[-1])
    assert page.execute_script("return document.getElementById('picture').naturalWidth") == 5 * 9 - 1


def test_flickering_alternates_with_the_reference_solve_and_stops(page):
    button = find(page, "#flicker")
    into_view(page, button)
    own = find(page, "#picture").get_attribute("src")
    reference = find(page, "#picture-reference").get_attribute("src")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    wait(page, "return document.getElementById('picture').src === arguments[0]", reference)
    wait(page, "return document.getElementById('picture').src === arguments[0]", own)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert find(page, "#picture").get_attribute("src") == own


def test_the_theme_follows_the_system_and_the_button(page):
    def background():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    def ink():
        return page.execute_script("return document.getElementById('chart-ranking').layout.font.color")

    light = background(), ink()
    button = find(page, "#theme")
    into_view(page, button)
    assert button.text == "Dark"
    button.click()
    dark = background(), ink()
    assert button.text == "Light"  # where it leads to
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    button.click()
    assert (background(), ink()) == light
    page.execute_script("delete document.documentElement.dataset.theme")
    prefer(page, "dark")
    wait(page, "return document.getElementById('chart-ranking').layout.font.color === arguments[0]", dark[1])
    assert background() == dark[0]
    assert button.text == "Light"


def test_a_printed_page_cuts_no_chart_and_is_light(page):
    page.execute_script("root.dataset.theme = 'dark'; drawAll()")
    light, dark = "rgb(28, 32, 36)", page.execute_script("return find('#chart-ranking').layout.font.color")
    assert dark != light
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script("return find('#chart-ranking').layout.font.color") == light
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    width = 717  # of A4 at 96 dots per inch between the browser's margins
    cut = page.execute_script(
        "document.body.style.width = `${arguments[0]}px`; document.body.style.margin = 0;"
        "const right = (e) => e.getBoundingClientRect().right;"
        "return [...document.querySelectorAll('.chart .main-svg')].filter((e) => right(e) > arguments[0] + 1).length",
        width,
    )
    assert cut == 0
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    page.execute_script("document.body.style = ''; dispatchEvent(new Event('afterprint'))")
    assert page.execute_script("return find('#chart-ranking').layout.font.color") == dark


def test_a_phone_never_scrolls_sideways(page, compared):
    resize(page, 360, 740)
    opened(page, compared / "report.html")
    page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    width = page.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width == [360, 360]
    wide = page.execute_script(
        "return [...document.querySelectorAll('main .chart, main select, main button, main h2, main img')]"
        ".filter((e) => e.getBoundingClientRect().right > 360.5).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_everything_can_be_reached_by_the_tab_key_and_the_focus_is_seen(page):
    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    body = find(page, "body")
    body.send_keys(Keys.TAB)
    reached = []
    for _ in range(12):
        here = page.switch_to.active_element
        reached.append(here.get_attribute("id") or here.get_attribute("href") or here.tag_name)
        assert page.execute_script("return getComputedStyle(arguments[0]).outlineStyle", here) != "none"
        here.send_keys(Keys.TAB)
    assert reached[0].endswith("#main")
    assert reached[1] == "theme"
    assert any(place.endswith("#curves") for place in reached)


def test_names_and_roles_are_there_for_a_screen_reader(page):
    page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"] and "role" in node
    ]
    roles = {role for role, _ in named}
    assert {"banner", "navigation", "main", "contentinfo", "region", "table", "slider"} <= roles
    speakers = {"button", "slider", "combobox", "radio", "image", "img", "link", "region", "navigation"}
    assert [pair for pair in named if pair[0] in speakers and not pair[1].strip()] == []


def test_a_browser_that_cannot_unpack_the_charts_is_told_where_the_numbers_are(browser, compared, tmp_path):
    text = (compared / "report.html").read_text(encoding="utf-8")
    (tmp_path / "old.html").write_text(text.replace("new DecompressionStream", "new Nothing"), encoding="utf-8")
    browser.get((tmp_path / "old.html").as_uri())
    wait(browser, "return !document.getElementById('no-charts').hidden")
    find(browser, "#ranking summary").click()
    assert "6 steps of ddim" in find(browser, "#ranking details").text
    browser.get_log("browser")  # the error that was asked for


def test_hostile_names_stay_text(browser, copied, tmp_path):
    from geosprint.report.page import write_report

    evil = "<b>x</b><img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>{{7*7}}"
    summary = json.loads((copied / "summary.json").read_text())
    (copied / "summary.json").write_text(
        json.dumps({**summary, "model": evil, "command": f"geosprint {evil}", "machine": evil})
    )
    rows = (copied / "results.csv").read_text().replace("karras", '"' + evil.replace('"', '""') + '"')
    (copied / "results.csv").write_text(rows)
    (copied / "schedule<b>.json").write_text("{")
    opened(browser, write_report(copied, tmp_path / "evil.html"))
    assert browser.title == f"{evil}: GeoSPRINT report"
    assert find(browser, ".eyebrow b").text == evil
    assert find_all(browser, "img[src=x]") == []
    quoted = shlex.join(["geosprint", *shlex.split(evil)])  # a shell would run the rest of a line that is not quoted
    assert find(browser, "#redo pre").text == quoted
    labels = [label.text for label in find_all(browser, "#chart-ranking .ytick text")]
    assert evil in labels
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []

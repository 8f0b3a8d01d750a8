"""Accessibility and layout of every page: screen readers, keyboard, both themes, a phone's width, and size."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, Response, ViewportSize, expect

from tests.e2e.conftest import PAGE_S, Window
from tests.e2e.people import ask, sign_up
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
PUBLIC_PAGES = ("/", "/matching", "/models", "/status", "/login", "/signup")
MEMBER_PAGES = (
    "/nodes",
    "/market",
    "/validators",
    "/leases",
    "/earnings",
    "/playground",
    "/keys",
    "/usage",
    "/join",
    "/account",
)
COLOUR_RULES = ("color-contrast",)
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 375, "height": 720}
FIRST_PAGE_SCRIPT_BYTES = 200_000


def serious_faults(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """The serious and critical violations that axe-core reports, by these rules or by all.

    The browser context must bypass the Content-Security-Policy, which forbids foreign scripts.
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    violations = page.evaluate("async options => (await axe.run(document, options)).violations", options)
    return [
        f"{page.url}: {found['id']}: {found['nodes'][0]['html'][:200]} {found['nodes'][0]['failureSummary'][:300]}"
        for found in violations
        if found["impact"] in ("serious", "critical")
    ]


def faults_in_both_themes(page: Page) -> list[str]:
    """All rules in the dark theme; in the light one, which differs in its colours only, the rules of colour."""
    faults = serious_faults(page)
    page.emulate_media(color_scheme="light")
    page.locator("html[data-theme=light]").wait_for()
    faults += serious_faults(page, COLOUR_RULES)
    page.emulate_media(color_scheme="dark")
    return faults


def faults_of_all_pages(page: Page, network: Network) -> list[str]:
    faults: list[str] = []
    node_id = ask_api(network, "GET", "/v1/nodes").json()["data"][0]["id"]
    for path in (*PUBLIC_PAGES, *MEMBER_PAGES, f"/nodes/{node_id}"):
        page.goto(f"{network.root_url}{path}")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        page.wait_for_load_state("load")
        faults += faults_in_both_themes(page)
        page.set_viewport_size(PHONE)
        if page.evaluate("() => document.documentElement.scrollWidth") > PHONE["width"]:
            faults.append(f"{path}: wider than a phone")
        page.set_viewport_size(DESKTOP)
    return faults


def test_every_page_is_accessible_and_fits_a_phone(network: Network, browser: Browser) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme="dark", bypass_csp=True)
    window = Window(context)
    page = sign_up(window, network)
    ask(page, "Say hello")
    page.get_by_test_id("why-link").click()
    page.get_by_test_id("timeline").wait_for()
    faults = faults_in_both_themes(page)
    faults += faults_of_all_pages(page, network)
    context.close()
    assert faults == []
    assert window.faults == []


def test_a_phone_has_every_page_in_its_bar_and_nothing_over_the_map(network: Network, browser: Browser) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    window = Window(context)
    page = window.open(network, "/")
    world = page.get_by_role("img", name="World map").bounding_box()
    legend = page.get_by_label("Nodes by state").bounding_box()
    assert world is not None
    assert legend is not None
    assert legend["y"] >= world["y"] + world["height"]
    page.get_by_role("button", name="More").click()
    page.get_by_role("link", name="Models").click()
    page.wait_for_url("**/models")
    context.close()
    assert window.faults == []


def test_search_and_drawers_work_by_keyboard_alone(network: Network, window: Window) -> None:
    sign_up(window, network)
    page = window.open(network, "/")
    page.get_by_role("button", name="Find a node").wait_for()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find a node")).to_be_focused()
    page.keyboard.type("node-2")
    expect(page.get_by_role("option").first).to_contain_text("node-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/0x*")
    expect(page.get_by_role("heading", level=1)).to_have_text("node-2")
    page = window.open(network, "/keys")
    opener = page.get_by_role("button", name="Make a key", exact=True)
    opener.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()


def test_a_link_shows_the_same_table_filter_and_choice(network: Network, window: Window) -> None:
    """The choice is made by keyboard and stored in the address."""
    sign_up(window, network)
    page = window.open(network, "/usage")
    page.get_by_role("radio", name="day").press("ArrowRight")
    expect(page.get_by_role("radio", name="model")).to_be_focused()
    page.reload()
    expect(page.get_by_role("radio", name="model")).to_have_attribute("aria-checked", "true")
    page = window.open(network, "/nodes")
    page.get_by_label("Which nodes").fill("region=EU")
    page.get_by_label("Which nodes").press("Enter")
    expect(page.locator("#nodes")).to_contain_text("1 row")
    page.reload()
    expect(page.locator("#nodes")).to_contain_text("1 row")
    page = window.open(network, "/#regions")
    expect(page.locator("#regions")).to_be_in_viewport()


def test_the_first_page_loads_little_script(network: Network, window: Window) -> None:
    sizes: list[int] = []

    def add_size(response: Response) -> None:
        if response.url.endswith(".js"):
            sizes.append(int(response.headers.get("content-length", 10**9)))

    window.page.on("response", add_size)
    page = window.open(network, "/")
    page.get_by_role("img", name="World map").wait_for(timeout=PAGE_S * 1000)
    page.wait_for_load_state("load")
    assert 0 < sum(sizes) < FIRST_PAGE_SCRIPT_BYTES

"""Every page, in both themes and on a phone: usable without eyes or a mouse, and nothing cut off."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.e2e.conftest import PAGE_S, Window
from tests.e2e.people import ask, sign_up
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
PUBLIC = ("/", "/matching", "/models", "/status", "/login", "/signup")
OWN = ("/nodes", "/earnings", "/playground", "/keys", "/usage", "/join", "/account")
COLOURS = ("color-contrast",)
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 375, "height": 720}
FIRST_PAGE_SCRIPT_BYTES = 200_000


def serious_faults(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """What axe-core calls serious or critical, by these rules or by all. It is run beside the page's own policy."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("async options => (await axe.run(document, options)).violations", options)
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def faults_in_both_themes(page: Page) -> list[str]:
    """They differ in their colours alone, so the light one is looked through for those."""
    found = serious_faults(page)
    page.emulate_media(color_scheme="light")
    page.locator("html[data-theme=light]").wait_for()
    found += serious_faults(page, COLOURS)
    page.emulate_media(color_scheme="dark")
    return found


def look_through(page: Page, network: Network) -> list[str]:
    """Each page once."""
    found: list[str] = []
    node_id = ask_api(network, "GET", "/v1/nodes").json()["data"][0]["id"]
    for path in (*PUBLIC, *OWN, f"/nodes/{node_id}"):
        page.goto(f"{network.root_url}{path}")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        page.wait_for_load_state("load")
        found += faults_in_both_themes(page)
        page.set_viewport_size(PHONE)
        if page.evaluate("() => document.documentElement.scrollWidth") > PHONE["width"]:
            found.append(f"{path}: wider than a phone")
        page.set_viewport_size(DESK)
    return found


def test_every_page_can_be_read_by_all(network: Network, browser: Browser) -> None:
    """No serious fault by axe, in both themes, and nothing cut off on a phone."""
    context = browser.new_context(viewport=DESK, color_scheme="dark", bypass_csp=True)
    window = Window(context)
    page = sign_up(window, network)
    ask(page, "Say hello")
    page.get_by_test_id("why-link").click()
    page.get_by_test_id("timeline").wait_for()
    found = faults_in_both_themes(page)
    found += look_through(page, network)
    context.close()
    assert found == []
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
    """Chosen by keyboard; what was chosen is in the address."""
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


def test_the_first_page_is_small_and_comes_from_here_alone(network: Network, window: Window) -> None:
    sizes: list[int] = []

    def weigh(reply: object) -> None:
        if str(getattr(reply, "url", "")).endswith(".js"):
            sizes.append(int(getattr(reply, "headers", {}).get("content-length", 10**9)))

    window.page.on("response", weigh)
    page = window.open(network, "/")
    page.get_by_role("img", name="World map").wait_for(timeout=PAGE_S * 1000)
    page.wait_for_load_state("load")
    assert 0 < sum(sizes) < FIRST_PAGE_SCRIPT_BYTES

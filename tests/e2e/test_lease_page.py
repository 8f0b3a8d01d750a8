"""The page of a lease in the states that a small network seldom has; the replies are stubbed.

`test_running_lease` has a real container.
"""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, Route, StorageState, ViewportSize, expect

from tests.e2e.conftest import Window
from tests.e2e.lease_replies import LEASE, ended, nearly_empty, running, serve_lease
from tests.e2e.market_replies import serve_market
from tests.e2e.test_market import WIDTH, log_in, member, session
from tests.e2e.test_pages import DESKTOP, PHONE, faults_in_both_themes
from tests.e2e.wizard import go_to
from tests.integration.networks import Network

__all__ = ["member", "session"]
WIDE: ViewportSize = {"width": 1440, "height": 900}


def test_a_lease_shows_what_it_costs_what_it_writes_and_what_happened(
    network: Network, window: Window, member: Page
) -> None:
    serve_lease(member, running())
    window.open(network, f"/leases/{LEASE}")
    states = member.get_by_test_id("lease-states")
    expect(states.locator("[aria-current=step]")).to_contain_text("running")
    expect(member.get_by_test_id("money")).to_contain_text(re.compile(r"\$1\.13 /h.*\$0\.42.*\$1\.58.*4[45] min"))
    expect(member.get_by_role("img", name=re.compile("21.0 % of the deposit is spent"))).to_be_visible()
    expect(member.get_by_test_id("lease-events").locator("li")).to_have_count(5)
    expect(member.get_by_test_id("lease-events").locator("li").first).to_contain_text("Ordered")
    log = member.get_by_role("log")
    expect(log).to_contain_text("epoch 59: loss 0.31")
    expect(log.get_by_title("stderr")).to_have_text("warning: slow disk")
    expect(member.get_by_test_id("deposit-warning")).to_have_count(0)


def test_an_extension_says_what_it_costs_before_anything_is_sent(
    network: Network, window: Window, member: Page
) -> None:
    sent: list[Any] = []
    member.on("request", lambda each: sent.append(each.post_data_json) if each.url.endswith("/extend") else None)
    serve_lease(member, running())
    window.open(network, f"/leases/{LEASE}")
    member.get_by_role("button", name="Extend", exact=True).click()
    dialog = member.get_by_role("dialog")
    expect(dialog.get_by_test_id("consequence")).to_contain_text("may cost $1.98 from now on. $0.42 of your credits")
    dialog.get_by_role("button", name="Not now").click()
    expect(dialog).to_have_count(0)
    assert [each["dry_run"] for each in sent] == [True]


def test_a_top_up_beyond_the_cap_says_that_it_raises_it(network: Network, window: Window, member: Page) -> None:
    serve_lease(member, nearly_empty())
    window.open(network, f"/leases/{LEASE}")
    expect(member.get_by_test_id("deposit-warning")).to_contain_text("80 % of the deposit is spent")
    member.get_by_role("button", name="Top up").click()
    said = member.get_by_role("dialog").get_by_test_id("consequence")
    expect(said).to_contain_text("may cost $2.00 at most; this raises that to $3.00")


def test_a_lease_that_ended_says_who_why_and_what_came_back(network: Network, window: Window, member: Page) -> None:
    serve_lease(member, ended())
    window.open(network, f"/leases/{LEASE}")
    ending = member.get_by_test_id("ending")
    expect(ending).to_contain_text("Ended by the network: the deposit was used up")
    expect(ending).to_contain_text("$1.90 paid, $0.10 refunded, $0.05 compensation from the provider's bond. EMPTY")
    expect(member.get_by_text("Its logs have gone with it")).to_be_visible()
    expect(member.get_by_role("button", name="Close", exact=True)).to_have_count(0)


def test_what_is_forbidden_broken_and_out_of_reach_looks_different(
    network: Network, window: Window, member: Page
) -> None:
    path = f"**/v1/leases/{LEASE}"
    member.route(path, lambda route: refuse(route, 404, "You have no lease '783c'."))
    window.open(network, f"/leases/{LEASE}")
    expect(member.get_by_text("You have no such lease")).to_be_visible()
    expect(member.get_by_text("shown to the account that ordered it, and to nobody else")).to_be_visible()
    member.route(path, lambda route: refuse(route, 503, "The chain does not answer."))
    expect(member.get_by_role("alert")).to_contain_text("The chain does not answer.")
    expect(member.get_by_text("Your program does not depend on this page")).to_be_visible()
    serve_lease(member, running())
    expect(member.get_by_role("log")).to_contain_text("epoch 59")
    member.route(path, lambda route: route.abort())
    expect(member.get_by_test_id("last-known")).to_be_visible()
    expect(member.locator(".grayscale [data-testid=money]")).to_be_visible()
    window.faults.clear()  # the browser reports what was refused and cut off


def refuse(route: Route, status: int, message: str) -> None:
    error = {"message": message, "type": "error", "param": None, "code": "error"}
    route.fulfill(status=status, json={"error": error})


def test_a_log_that_breaks_off_says_so_and_can_be_read_again(network: Network, window: Window, member: Page) -> None:
    serve_lease(member, running())
    logs = f"**/v1/leases/{LEASE}/logs?*"
    broken = '{"text":"the last line\\n"}\n\n{"error":{"message":"The node is not connected now."}}\n'
    member.route(logs, lambda route: route.fulfill(content_type="application/x-ndjson", body=broken))
    window.open(network, f"/leases/{LEASE}")
    box = member.get_by_test_id("logs")
    expect(box.get_by_role("alert")).to_have_text("The node is not connected now.")
    expect(box.get_by_role("log")).to_contain_text("the last line")
    member.unroute(logs)
    serve_lease(member, running())
    box.get_by_role("button", name="Try again").click()
    expect(box.get_by_role("log")).to_contain_text("epoch 59")
    expect(box.get_by_role("alert")).to_have_count(0)


def test_a_log_whose_connection_broke_off_is_read_again_by_itself(
    network: Network, window: Window, member: Page
) -> None:
    serve_lease(member, running())
    member.route(f"**/v1/leases/{LEASE}/logs?*", lambda route: route.abort(), times=1)
    window.open(network, f"/leases/{LEASE}")
    expect(member.get_by_role("log")).to_contain_text("epoch 59")
    window.faults.clear()  # the browser reports the request that was cut off


def test_offers_are_narrowed_by_card_and_become_conditions(network: Network, window: Window, member: Page) -> None:
    asked: list[Any] = []
    member.on("request", lambda each: asked.append(each.post_data_json) if each.url.endswith("dry-run") else None)
    window.open(network, "/")
    member.get_by_role("region", name="Rent a GPU").get_by_role("link", name="Order a lease").click()
    member.wait_for_url("**/leases/new")
    go_to(member, "Machine")
    expect(member.get_by_test_id("offer-count")).to_contain_text("6 of 6 providers")
    member.get_by_label("Card").select_option("rtx-4090")
    member.get_by_label("Region").select_option("CZ")
    member.get_by_label("Highest price").fill("0.5")
    expect(member.get_by_text("No offer is left")).to_be_visible()
    member.get_by_label("Highest price").fill("1.2")
    expect(member.locator("#machine-offers tbody tr")).to_have_count(6)
    go_to(member, "What")
    member.get_by_label("Image").fill("ubuntu:24.04")
    go_to(member, "Price")
    expect(member.get_by_test_id("quote")).to_be_visible()
    assert asked[-1]["policy"] == "max_hourly=1.2 gpu=rtx-4090 region=CZ"


def test_the_page_of_a_lease_is_accessible_and_fits_every_screen(
    network: Network, browser: Browser, session: StorageState
) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme="dark", bypass_csp=True)
    window = Window(context)
    page = window.page
    log_in(page, session)
    serve_market(page)
    faults: list[str] = []
    for lease in (running(), nearly_empty(), ended()):
        serve_lease(page, lease)
        window.open(network, f"/leases/{LEASE}")
        page.get_by_test_id("lease-events").wait_for()
        faults += faults_in_both_themes(page)
        for size in (PHONE, WIDE):
            page.set_viewport_size(size)
            if page.evaluate(WIDTH) > size["width"]:
                faults.append(f"{lease.phase}: wider than {size['width']}")
        page.set_viewport_size(DESKTOP)
    context.close()
    assert faults == []
    assert window.faults == []

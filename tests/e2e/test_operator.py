"""The operator's path: open the page by the link of a terminal, see the books, invite, give credits, fund."""

from __future__ import annotations

import re
import secrets

from playwright.sync_api import Page, expect

from tests.e2e.conftest import Window
from tests.e2e.people import sign_up
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.integration.people import PASSWORD
from tests.integration.people import sign_up as sign_up_by_api


def enter(window: Window, network: Network) -> Page:
    """By a link as `up` and `sparewatt dashboard` print it."""
    url = ask(network, "POST", "/v1/login/links", {}).json()["url"]
    page = window.open(network, url.removeprefix(network.root_url))
    page.wait_for_url("**/operate")
    return page


def test_the_operator_sees_the_books_and_lets_people_in(window: Window, network: Network) -> None:
    person = sign_up_by_api(network, f"guest-{secrets.token_hex(6)}@example.org", PASSWORD)
    page = enter(window, network)
    expect(page.get_by_test_id("books")).to_have_text("in order")

    page.get_by_role("button", name="Invite somebody").click()
    expect(page.get_by_test_id("invitation")).to_contain_text("invite-sw-")

    page.get_by_role("button", name=f"Give credits to {person.email}").click()
    page.get_by_label("Dollars", exact=False).first.fill("3")
    page.get_by_role("button", name="Give", exact=True).click()
    expect(page.get_by_role("button", name="Give", exact=True)).to_have_count(0)
    balance = ask(network, "GET", "/v1/credits", key=person.key).json()["data"]
    assert float(balance["promo_usd"]) >= 3

    before = page.get_by_label("Treasury").inner_text()
    page.get_by_label("Dollars to add").fill("2")
    page.get_by_role("button", name="Fund").click()
    expect(page.get_by_label("Treasury")).not_to_have_text(before)
    page.get_by_label("Dollars for uptime").fill("3")
    page.get_by_role("button", name="Put aside").click()
    expect(page.get_by_label("Uptime credits")).to_contain_text(re.compile(r"Put aside\$13\.00.*Daily limit\$10\.00"))
    page.get_by_role("button", name="Audit again").click()
    expect(page.get_by_test_id("books")).to_have_text("in order")


def test_a_link_works_once_and_leaves_no_secret_in_the_address(window: Window, network: Network) -> None:
    url = ask(network, "POST", "/v1/login/links", {}).json()["url"].removeprefix(network.root_url)
    window.open(network, url).wait_for_url("**/operate")
    assert "#" not in window.page.url
    window.page.get_by_role("button", name="Log out").click()
    window.page.get_by_role("link", name="Log in").first.wait_for()
    page = window.open(network, "/status")
    page.goto(f"{network.root_url}{url}")
    expect(page.get_by_role("alert")).to_contain_text("was used")
    window.faults.clear()  # the browser reports the refusal, status 401, as an error


def test_the_keys_of_others_are_shown_only_on_demand(window: Window, network: Network) -> None:
    person = sign_up_by_api(network, f"guest-{secrets.token_hex(6)}@example.org", PASSWORD)
    enter(window, network)
    page = window.open(network, "/keys")
    page.get_by_label("of other accounts too", exact=False).wait_for()
    expect(page.get_by_text(f"of {person.account_id}")).to_have_count(0)
    page.get_by_label("of other accounts too", exact=False).check()
    expect(page.get_by_text(f"of {person.account_id}").first).to_be_visible()


def test_others_are_told_whose_page_it_is(window: Window, network: Network) -> None:
    sign_up(window, network)
    page = window.open(network, "/operate")
    expect(page.get_by_text("for operators of the network")).to_be_visible()
    expect(page.get_by_role("link", name="Operate")).to_have_count(0)

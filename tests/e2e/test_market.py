"""The pages of the lease market: order book, an auction bid by bid and vote by vote, and validators.

The replies are stubbed: a small network makes no auction in which everything happens. `test_leases` has a real chain.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, Route, StorageState, expect

from sparewatt.protocol.api.feed import FeedAuction, FeedSnapshot, NetworkTotals
from tests.e2e import market_replies
from tests.e2e.conftest import Window
from tests.e2e.market_replies import DIGEST, FOUND, NOT_FOUND, OPEN, PROVIDERS, serve_market
from tests.e2e.people import sign_up
from tests.e2e.test_pages import DESKTOP, PHONE, faults_in_both_themes
from tests.e2e.wizard import go_to
from tests.integration.networks import Network

SHIFTS = """() => new Promise(done => {
    const observer = new PerformanceObserver(() => {});
    observer.observe({type: 'layout-shift', buffered: true});
    requestAnimationFrame(() => done(observer.takeRecords().reduce((sum, entry) => sum + entry.value, 0)));
})"""
WIDTH = """() =>
    Math.max(...[document.documentElement, ...document.querySelectorAll('dialog')].map(each => each.scrollWidth))"""
SHIFT_MAX = 0.1
"""What browsers call good."""


@pytest.fixture(scope="module")
def session(network: Network, browser: Browser) -> StorageState:
    """Of an account that signed up once for all tests here: a form and its pages take seconds."""
    context = browser.new_context()
    sign_up(Window(context), network)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def member(window: Window, session: StorageState) -> Page:
    """A page that is logged in and gets the stubbed market."""
    log_in(window.page, session)
    serve_market(window.page)
    return window.page


def log_in(page: Page, session: StorageState) -> None:
    cookies: Any = session.get("cookies", [])
    page.context.add_cookies(cookies)
    page.add_init_script("localStorage.setItem('sparewatt-known', 'yes')")


def test_the_order_book_counts_down_and_says_why_an_order_found_nobody(
    network: Network, window: Window, member: Page
) -> None:
    window.open(network, "/market")
    book = member.locator("#orders")
    expect(book.locator("tbody tr")).to_have_count(3)
    expect(book).to_contain_text(re.compile(r"bids come in sealed\s*\d+ s"))
    expect(book).to_contain_text("0 bids because 4 providers have too little GPU memory")
    expect(book.get_by_role("img", name="3 votes, 75.0 % of today's stake")).to_be_visible()
    expect(book).to_contain_text(re.compile(r"unmatched\s*Attempt 2 of 4 opens in \d+ min\."))
    expect(member.locator("#leases")).to_contain_text("$1.13/h")
    expect(member.locator("#providers")).to_contain_text("rtx-4090, 24 GB")
    for _ in range(2):
        with member.expect_response("**/v1/market/orders?*"):
            pass
    assert member.evaluate(SHIFTS) < SHIFT_MAX


def test_an_order_is_shown_bid_by_bid_and_vote_by_vote(network: Network, window: Window, member: Page) -> None:
    window.open(network, f"/market/{FOUND}")
    drawer = member.get_by_role("dialog")
    expect(drawer.get_by_test_id("phases")).to_have_attribute("data-phase", "matched")
    expect(drawer.get_by_test_id("phases")).to_contain_text(re.compile("Lookup.*7 nodes asked.*3 of 4 voted, round 2"))
    bids = drawer.get_by_test_id("bids").locator("li")
    expect(bids).to_have_count(5)
    expect(bids.first).to_contain_text("won")
    expect(bids.first).to_contain_text("is paid $1.13/h")
    expect(bids.first.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"^price: .1\.100, distance: .0\.010, risk")
    )
    expect(bids.first).to_contain_text(re.compile(r"20 ms away.*uptime 99\.80 %, reputation 99\.00 %"))
    expect(bids.nth(3)).to_contain_text("asked more than the order's highest price")
    expect(bids.nth(4)).to_contain_text("never revealed")
    expect(drawer.get_by_test_id("declines")).to_contain_text("busy")
    expect(drawer.locator("#refusals")).to_contain_text("210 ms")
    replay = drawer.get_by_test_id("side-by-side")
    expect(replay).to_contain_text("Every vote of this round that is known has the digest of the certificate.")
    expect(replay).to_contain_text("In another round a vote may be for another result")
    expect(replay.get_by_text("not heard by this gateway")).to_be_visible()
    expect(replay.get_by_test_id("recomputed")).to_contain_text("3 scores")
    certificate = drawer.get_by_test_id("certificate")
    expect(certificate).to_contain_text("3 of 4 validators signed, 75.0 % of the stake")
    expect(drawer.get_by_test_id("digest")).to_have_text(DIGEST)


def test_the_countdown_of_an_open_auction_moves(network: Network, window: Window, member: Page) -> None:
    window.open(network, "/market")
    left = member.locator("#orders [data-testid=countdown]")
    expect(left).to_have_text(re.compile(r"^\d+ s$"))
    shown = left.inner_text()
    expect(left).not_to_have_text(shown)
    window.open(network, f"/market/{OPEN}")
    steps = member.get_by_test_id("phases")
    expect(steps).to_contain_text("s left")
    shown = steps.inner_text()
    expect(steps).not_to_have_text(shown)


def test_without_a_place_to_be_near_to_no_distance_is_shown(network: Network, window: Window, member: Page) -> None:
    first, *others = market_replies.found_match().bids
    near = msgspec.structs.replace(first, score=market_replies.score(10**6, rtt_ms=0, uptime_ppm=1, reputation_ppm=1))
    match = msgspec.structs.replace(market_replies.found_match(), bids=[near, *others])
    member.route("**/v1/leases/*/match*", lambda route: market_replies.fulfil(route, match))
    window.open(network, f"/market/{FOUND}")
    expect(member.get_by_test_id("bids").locator("li").first).to_contain_text("no place asked for")


def test_a_list_that_lacks_a_bid_names_the_bidder(network: Network, window: Window, member: Page) -> None:
    first, *others = market_replies.found_match().lists
    short = msgspec.structs.replace(first, bid_ids=first.bid_ids[1:])
    match = msgspec.structs.replace(market_replies.found_match(), lists=[short, *others])
    member.route("**/v1/leases/*/match*", lambda route: market_replies.fulfil(route, match))
    window.open(network, f"/market/{FOUND}")
    row = member.get_by_test_id("side-by-side").locator("tbody tr").first
    expect(row).to_contain_text(f"differs: 3 bidslacks {PROVIDERS[0][:10]}")


def test_a_validator_that_voted_for_something_else_stands_out(network: Network, window: Window, member: Page) -> None:
    match = market_replies.found_match()
    votes = [msgspec.structs.replace(vote, round=1) for vote in match.votes[:1]] + match.votes[1:3]
    lying = msgspec.structs.replace(match, votes=votes)
    member.route("**/v1/leases/*/match*", lambda route: market_replies.fulfil(route, lying))
    window.open(network, f"/market/{FOUND}")
    replay = member.get_by_test_id("side-by-side")
    expect(replay).to_contain_text("At least one vote of this round has another digest")
    expect(replay.locator("tbody tr").nth(2)).to_contain_text("differs: 0xe2e2e2e2")


def test_a_false_score_is_found_by_the_page_itself(network: Network, window: Window, member: Page) -> None:
    match = market_replies.found_match()
    first = match.bids[0]
    assert first.score is not None
    forged = msgspec.structs.replace(first, score=msgspec.structs.replace(first.score, score="1"))
    lying = msgspec.structs.replace(match, bids=[forged, *match.bids[1:]])
    member.route("**/v1/leases/*/match*", lambda route: market_replies.fulfil(route, lying))
    window.open(network, f"/market/{FOUND}")
    expect(member.get_by_test_id("side-by-side")).to_contain_text(f"The score of {first.provider} is")
    expect(member.get_by_test_id("recomputed")).to_have_count(0)


def test_an_order_that_nobody_could_serve_has_reasons_and_relaxations(
    network: Network, window: Window, member: Page
) -> None:
    window.open(network, f"/market/{NOT_FOUND}")
    why = member.get_by_test_id("no-winner")
    expect(why).to_contain_text("0 bids because 4 providers have too little GPU memory")
    expect(why).to_contain_text(re.compile(r"too little GPU memory\s*4"))
    expect(why.get_by_role("listitem").first).to_have_text("24 GB of GPU memory adds 3 providers")


def test_an_open_auction_shows_sealed_bids_and_no_price(network: Network, window: Window, member: Page) -> None:
    window.open(network, f"/market/{OPEN}")
    drawer = member.get_by_role("dialog")
    expect(drawer.get_by_test_id("phases")).to_contain_text(re.compile(r"3 sealed · \d+ s left"))
    expect(drawer.get_by_test_id("bids").locator("li", has_text="sealed")).to_have_count(3)
    expect(drawer.get_by_test_id("bids")).not_to_contain_text("$")
    expect(drawer.get_by_text("Not yet: it needs votes")).to_be_visible()


def test_an_order_opens_and_closes_by_keyboard_and_is_found_by_its_id(
    network: Network, window: Window, member: Page
) -> None:
    window.open(network, "/market")
    link = member.locator("#orders tbody a").last
    link.press("Enter")
    expect(member.get_by_role("dialog")).to_contain_text(FOUND)
    member.keyboard.press("Escape")
    member.wait_for_url("**/market")
    expect(link).to_be_focused()
    member.keyboard.press("Control+k")
    member.keyboard.type(NOT_FOUND[:12])
    expect(member.get_by_role("option").first).to_contain_text("order, unmatched")
    member.keyboard.press("Enter")
    member.wait_for_url(f"**/market/{NOT_FOUND}")


def test_validators_are_shown_with_stake_and_votes(network: Network, window: Window, member: Page) -> None:
    window.open(network, "/validators")
    rows = member.locator("#validators tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text(re.compile(r"voting.*\$100\.00.*25\.0 %.*31 of 40.*97\.4 %.*1 of 40"))
    expect(rows.nth(3)).to_contain_text(re.compile(r"0 of 40.*40 of 40.*never"))
    expect(rows.nth(4)).to_contain_text("jailed, $50.00 taken")
    expect(member.get_by_role("img", name=re.compile("^Stake: .*25.0 %"))).to_be_visible()
    expect(member.get_by_text("epoch 12")).to_be_visible()


def test_an_order_is_quoted_while_one_types_with_a_clouds_price_beside(
    network: Network, window: Window, member: Page
) -> None:
    window.open(network, "/leases/new")
    member.get_by_label("Image").fill("ubuntu:24.04")
    expect(member.get_by_test_id("price-line")).to_contain_text(
        re.compile(r"2 of 6 could serve it, for \$0\.40 to \$0\.52")
    )
    expect(member.get_by_role("button", name="Order it")).to_have_count(0)
    go_to(member, "Price")
    quote = member.get_by_test_id("quote")
    expect(quote).to_contain_text(re.compile(r"2 of 6.*\$0\.40 to \$0\.52/h.*\$0\.79/h a cloud"))
    expect(quote).to_contain_text("1.25 times the dearest offer that fits")
    expect(member.get_by_role("button", name="Order it")).to_be_enabled()


def test_an_order_in_steps_carries_ports_and_environment(network: Network, window: Window, member: Page) -> None:
    asked: list[Any] = []
    member.on("request", lambda each: asked.append(each.post_data_json) if each.url.endswith("dry-run") else None)
    window.open(network, "/leases/new")
    expect(member.get_by_test_id("wizard")).to_have_attribute("data-step", "What")
    member.get_by_label("Image").fill("ubuntu:24.04")
    for step in ("Machine", "Inside"):
        member.get_by_role("button", name="Next").click()
        expect(member.get_by_test_id("wizard")).to_have_attribute("data-step", step)
    member.get_by_label("Ports").fill("8080, 22")
    member.get_by_label("Environment").fill("MODE=full\nEPOCHS=3")
    member.get_by_role("button", name="Next").click()
    expect(member.get_by_role("button", name="Order it")).to_be_enabled()
    assert (asked[-1]["ports"], asked[-1]["env"]) == ([8080, 22], ["MODE=full", "EPOCHS=3"])
    member.get_by_role("button", name="Back").click()
    expect(member.get_by_label("Ports")).to_have_value("8080, 22")


def test_an_order_with_secrets_is_a_line_for_the_renters_own_machine(
    network: Network, window: Window, member: Page
) -> None:
    """The page comes from the gateway, and so would the keys: it seals nothing, and says why."""
    window.open(network, "/leases/new")
    member.get_by_label("Image").fill("ubuntu:24.04")
    go_to(member, "Inside")
    expect(member.get_by_test_id("secrets-notice")).to_have_count(0)
    member.get_by_label("Secrets").fill("HF_TOKEN")
    expect(member.get_by_test_id("secrets-notice")).to_contain_text("recomputed the match")
    go_to(member, "Price")
    expect(member.get_by_test_id("secrets-line")).to_contain_text(
        "sparewatt lease create --image ubuntu:24.04 --gpus 1 --duration 1h --secret HF_TOKEN"
    )
    expect(member.get_by_role("button", name="Order it")).to_have_count(0)


def test_leases_stand_beside_inference_in_the_owners_earnings(network: Network, window: Window, member: Page) -> None:
    window.open(network, "/earnings")
    income = member.get_by_test_id("lease-income")
    expect(income).to_contain_text(re.compile(r"Earned by leases\$20\.90.*Due since then\$5\.26.*Brings now\$1\.13"))
    rows = member.locator("#lease-income tbody tr")
    expect(rows.first).to_contain_text(re.compile(r"for \d d, until 20\d\d-"))
    expect(rows.nth(1)).to_contain_text("ended 10 min ago")


def test_the_map_counts_nodes_with_leases_for_who_is_logged_in(network: Network, window: Window, member: Page) -> None:
    """One lease of the market is on a provider whose node is known; a visitor sees no such count."""
    window.open(network, "/")
    expect(member.get_by_test_id("leased-nodes")).to_contain_text("1 with leases")
    expect(member.get_by_role("img", name=re.compile("1 of them with leases"))).to_be_visible()


def test_a_closed_lease_shows_what_it_cost_and_what_came_back(network: Network, window: Window, member: Page) -> None:
    window.open(network, "/leases")
    expect(member.locator("#own-leases tbody tr").last).to_contain_text("cost $0.42, $1.58 came back")
    expect(member.locator("#own-leases tbody tr").first).not_to_contain_text("came back")


def test_a_lease_is_closed_only_after_a_yes(network: Network, window: Window, member: Page) -> None:
    sent: list[str] = []

    def cut_off(route: Route) -> None:
        sent.append(route.request.url)
        route.abort()

    member.route("**/v1/leases/*/close", cut_off)
    window.open(network, "/leases")
    close = member.get_by_role("button", name="Close ubuntu")
    member.once("dialog", lambda dialog: dialog.dismiss())
    close.click()
    expect(close).to_be_enabled()
    assert sent == []
    member.once("dialog", lambda dialog: dialog.accept())
    close.click()
    expect(member.get_by_role("alert")).to_contain_text("The gateway does not answer")
    assert len(sent) == 1
    window.faults.clear()  # the browser reports the request that was cut off


def test_what_was_known_stays_greyed_while_the_gateway_does_not_answer(
    network: Network, window: Window, member: Page
) -> None:
    window.open(network, f"/market/{FOUND}")
    drawer = member.get_by_role("dialog")
    expect(drawer.locator("#replay tbody tr").last).to_be_visible()
    member.route("**/v1/market/**", lambda route: route.abort())
    expect(drawer.get_by_test_id("last-known")).to_have_text(re.compile("last that is known, from (now|.* ago)"))
    expect(drawer.locator(".grayscale #replay tbody tr").last).to_be_visible()
    expect(member.locator("main .grayscale #orders tbody tr").last).to_be_attached()
    serve_market(member)
    expect(member.get_by_test_id("last-known")).to_have_count(0)
    window.faults.clear()  # the browser reports every request that was cut off


def test_a_visitor_is_told_how_to_see_the_market(network: Network, window: Window) -> None:
    page = window.open(network, "/market")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in to see the market")
    expect(page.get_by_text("open to everybody who has an account")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Sign up").click()
    page.wait_for_url("**/signup?next=%2Fmarket")


def test_a_network_without_a_chain_says_so(network: Network, window: Window, session: StorageState) -> None:
    log_in(window.page, session)
    for path in ("/market", "/validators", "/leases"):
        page = window.open(network, path)
        expect(page.get_by_test_id("no-chain")).to_be_visible()


def test_live_matching_shows_auctions_and_votes_to_everybody(network: Network, window: Window) -> None:
    auction = FeedAuction(
        id=FOUND,
        at=1,
        attempt=0,
        state="matched",
        gpus=2,
        commit_ms=800,
        reveal_ms=400,
        bids=4,
        votes=3,
        voters=4,
        share=0.75,
        certified_at=2,
    )
    totals = NetworkTotals(nodes={"online": 1}, gpus=0, vram_gb=0, jobs=0, tokens_per_s=0, first_token_ms=None)
    frame = FeedSnapshot(at=1.0, states=["online"], nodes=[], totals=totals, matches=[], auctions=[auction])
    body = f"retry: 600000\nevent: snapshot\nid: x-1\ndata: {msgspec.json.encode(frame).decode()}\n\n"
    window.page.route("**/v1/feed", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page = window.open(network, "/matching")
    row = page.locator("#auctions tbody tr").first
    expect(row).to_contain_text(re.compile(r"matched.*4.*3 of 4"))
    expect(row.get_by_role("img")).to_have_attribute("aria-label", "3 of 4 validators, 75.0 % of the stake")


def faults_of(page: Page, where: str) -> list[str]:
    """Of accessibility in both themes, and whether it fits a phone."""
    faults = faults_in_both_themes(page)
    page.set_viewport_size(PHONE)
    if page.evaluate(WIDTH) > PHONE["width"]:
        faults.append(f"{where}: wider than a phone")
    page.set_viewport_size(DESKTOP)
    return faults


def test_the_markets_pages_are_accessible_and_fit_a_phone(
    network: Network, browser: Browser, session: StorageState
) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme="dark", bypass_csp=True)
    window = Window(context)
    page = window.page
    log_in(page, session)
    serve_market(page)
    faults: list[str] = []
    for path, ready in (
        ("/market", "#orders"),
        ("/validators", "#validators"),
        (f"/market/{FOUND}", "[data-testid=certificate]"),
        (f"/market/{NOT_FOUND}", "[data-testid=no-winner]"),
        (f"/market/{OPEN}", "[data-testid=phases]"),
        ("/leases", "#own-leases"),
        ("/earnings", "#lease-income"),
        ("/leases/new", "[data-testid=quote]"),
    ):
        window.open(network, path)
        if path.endswith("new"):
            page.get_by_label("Image").fill("ubuntu:24.04")
            for step in ("What", "Machine", "Inside"):
                go_to(page, step)
                faults += faults_of(page, f"{path} {step}")
            page.get_by_label("Secrets").fill("HF_TOKEN")
            go_to(page, "Price")
        page.locator(ready).wait_for()
        faults += faults_of(page, path)
    context.close()
    assert faults == []
    assert window.faults == []

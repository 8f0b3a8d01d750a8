"""The developer's path: sign up, make a key, watch an answer stream, and open the explanation of its match."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.conftest import Window
from tests.e2e.people import ask, sign_up
from tests.integration.asking import ask as ask_api
from tests.integration.networks import Network

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_a_visitor_without_login_sees_live_matches_and_no_node_by_name(network: Network, window: Window) -> None:
    page = window.open(network, "/")
    expect(page.get_by_role("img", name=re.compile("World map: 3 nodes online"))).to_be_visible()
    expect(page.get_by_label("Nodes by state")).to_contain_text("3online", use_inner_text=False)
    body = {"model": network.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    answered = ask_api(network, "POST", "/v1/chat/completions", body)
    match_id = answered.headers["x-sparewatt-match-id"]
    expect(page.locator("#matches")).to_contain_text(match_id[:14])
    shown = page.content()
    nodes = ask_api(network, "GET", "/v1/nodes").json()["data"]
    assert not [node for node in nodes if node["name"] in shown or node["id"][:10] in shown]
    page.locator("#matches tbody tr").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("the account that sent the request")


def test_sign_up_ask_see_tokens_stream_and_open_why(network: Network, window: Window) -> None:
    page = sign_up(window, network)
    expect(page.get_by_test_id("eligible")).to_contain_text(re.compile("^3 of"))
    page.get_by_role("button", name="in the EU").click()
    expect(page.get_by_test_id("eligible")).to_contain_text(re.compile("^1 of"))
    page.get_by_role("button", name="in the EU").click()
    page.get_by_label("Question").fill("Tell me a long story")
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.get_by_test_id("answer")
    expect(answer).to_have_attribute("data-state", "writing")
    first = len(answer.inner_text())
    page.wait_for_function(
        "before => document.querySelector('[data-testid=answer]').innerText.length > before + 10", arg=first
    )
    expect(answer).to_have_attribute("data-state", "done")
    expect(page.get_by_text(re.compile(r"first token .* ms"))).to_be_visible()
    page.get_by_test_id("why-link").click()
    page.wait_for_url("**/matching/match_*")
    expect(page.get_by_test_id("funnel")).to_contain_text("all nodes")
    expect(page.get_by_test_id("scores").locator("li")).to_have_count(3)
    expect(page.get_by_test_id("scores")).to_contain_text("chosen")
    expect(page.get_by_test_id("timeline")).to_contain_text("done")
    page.get_by_text("What if a part had counted more").click()
    expect(page.get_by_test_id("what-if")).to_have_text("The same node would have won.")
    page.get_by_role("slider", name="writing the answer").fill("0")
    expect(page.get_by_test_id("what-if")).to_contain_text("would have won")
    page.keyboard.press("Escape")
    page.wait_for_url("**/matching")


def test_a_key_is_shown_once_and_works(network: Network, window: Window) -> None:
    sign_up(window, network)
    page = window.open(network, "/keys")
    page.get_by_role("button", name="Make a key", exact=True).click()
    page.get_by_label("Name", exact=True).fill("my app")
    page.get_by_label("Budget, in $").fill("5")
    page.get_by_label(re.compile("^Policy")).fill("region=EU")
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"1 of \d nodes are left"))
    page.get_by_role("button", name="Make the key").click()
    secret = page.get_by_test_id("new-key").inner_text()
    assert secret.startswith("sk-sw-")
    body = {"model": network.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    answered = ask_api(network, "POST", "/v1/chat/completions", body, key=secret)
    assert (answered.status, answered.headers["x-sparewatt-region"]) == (200, "eu-west")
    expect(page.locator("#keys")).to_contain_text("of $5.00 a day")
    page.reload()
    expect(page.locator("#keys")).to_contain_text("my app")
    assert secret not in page.content()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Revoke my app").click()
    expect(page.get_by_text("No key yet")).to_be_visible()


def test_html_in_a_prompt_or_an_answer_is_text(network: Network, window: Window) -> None:
    page = sign_up(window, network)
    ask(page, EVIL)
    expect(page.get_by_test_id("question")).to_have_text(EVIL)
    assert page.title() == "Playground · Sparewatt"
    # The test engine writes no markup, so the reply is stubbed for an answer that has some.
    chunk = '{"choices":[{"delta":{"content":' + EVIL.replace('"', '\\"').join('""') + "}}]}"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body=f"data: {chunk}\n\ndata: [DONE]\n\n"),
    )
    page.get_by_label("Question").fill("again")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_test_id("answer").last).to_have_text(EVIL)
    assert page.title() == "Playground · Sparewatt"
    assert page.locator("#main img, #main script").count() == 0


def test_the_content_security_policy_blocks_inline_scripts_and_eval(network: Network, window: Window) -> None:
    page = window.open(network, "/status")
    expect(page.get_by_role("heading", level=1)).to_have_text("Is it working?")
    blocked = page.evaluate(
        """() => new Promise(done => {
            addEventListener('securitypolicyviolation', event => done(event.effectiveDirective), {once: true});
            const script = document.createElement('script');
            try { script.text = "window.owned = 1"; document.body.append(script); } catch { done('trusted-types'); }
        })"""
    )
    assert blocked in ("script-src-elem", "require-trusted-types-for", "trusted-types")
    tried = "() => new Promise(done => setTimeout(() => { try { done(eval('1')); } catch { done('no'); } }))"
    assert page.evaluate(tried) == "no"
    assert page.evaluate("() => window.owned") is None
    window.faults = [fault for fault in window.faults if "violates" not in fault and "TrustedScript" not in fault]


def test_a_match_shows_an_answer_in_one_piece_and_the_candidates_of_a_failover(
    network: Network, window: Window
) -> None:
    """The explanation comes from a stubbed reply: the network of this test makes no such match."""
    page = sign_up(window, network)
    first, second = ({"node": f"0x{digit * 40}", "name": f"node-{digit}"} for digit in "12")
    scored = {"region": "DE", "cost_s": 1.0, "score": None, "parts": {"decode": 1.0}, "cached_tokens": 0}
    ranked = [one | scored | {"predicted_ttft_s": 0.1, "price_usd": "0.1"} for one in (first, second)]
    times = {"reason": None, "started_ms": 1.0, "first_token_ms": None, "ended_ms": 9.0, "continued_from": None}
    explanation = {
        "match_id": "match_a",
        "created_at": 1.0,
        "outcome": "done",
        "policy": "balanced",
        "model": "m",
        "job": {"prompt_tokens": 1, "output_tokens": 1, "vram_needed_bytes": None},
        "preference": None,
        "candidates_total": 2,
        "funnel": [],
        "rejected": [],
        "nearest_relaxations": [],
        "streamed": False,
        "ranked": ranked,
        "chosen": second["node"],
        "attempts": [
            first | times | {"outcome": "failed", "tokens": 0},
            second | times | {"outcome": "done", "tokens": 7},
        ],
        "moves": [{"attempt": 1, "after_tokens": 0, "chosen": second["node"], "candidates": ranked[1:]}],
    }
    page.route("**/v1/matches/match_a", lambda route: route.fulfill(json=explanation))
    window.open(network, "/matching/match_a")
    expect(page.get_by_test_id("timeline")).to_contain_text("in one piece")
    expect(page.get_by_test_id("timeline")).not_to_contain_text("never")
    expect(page.get_by_test_id("scores").first.locator("li", has_text="chosen")).to_contain_text("node-1")
    expect(page.get_by_role("region", name="Candidates left when node-1 failed")).to_contain_text("node-2 DE chosen")

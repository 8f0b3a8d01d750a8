"""A tenant's page in a browser that is logged in to the dashboard: it reads neither the session nor another tenant.

The page is what the gateway serves under a name of a site that no lease has: its origin is what matters here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.conftest import PAGE_S
from tests.integration.networks import Network
from tests.integration.people import PASSWORD

FETCH = "url => fetch(url, {credentials: 'include'}).then(reply => reply.status, () => 'blocked')"
SOCKET = """url => new Promise(done => {
  const socket = new WebSocket(url);
  socket.onopen = () => done('open');
  socket.onerror = () => done('refused');
})"""


@dataclass(frozen=True, slots=True)
class Pages:
    dashboard: Page
    tenant: Page
    port: int

    @property
    def dashboard_url(self) -> str:
        return f"http://localhost:{self.port}"


@pytest.fixture(scope="module")
def pages(browser: Browser, network: Network) -> Iterator[Pages]:
    """Both in one browser profile, under names as close to each other as they come."""
    port = urlsplit(network.root_url).port or 0
    context = browser.new_context()
    context.set_default_timeout(PAGE_S * 1000)
    dashboard, tenant = context.new_page(), context.new_page()
    dashboard.goto(f"http://localhost:{port}/signup")
    dashboard.get_by_label("E-mail").fill(f"p-{secrets.token_hex(6)}@example.org")
    dashboard.get_by_label("Password").fill(PASSWORD)
    dashboard.get_by_role("button", name="Sign up", exact=True).click()
    dashboard.wait_for_url("**/playground")
    assert dashboard.evaluate(FETCH, "/v1/me") == 200
    answer = tenant.goto(f"http://tenant.localhost:{port}/")
    assert answer is not None
    assert (answer.status, answer.text()) == (404, "404: There is no site at this address.\n")
    yield Pages(dashboard, tenant, port)
    context.close()


def test_a_tenants_page_reads_nothing_of_the_dashboard(pages: Pages) -> None:
    tenant, root = pages.tenant, pages.dashboard_url
    assert tenant.evaluate("document.cookie") == ""
    for path in ("/v1/me", "/v1/keys", "/v1/leases"):
        assert tenant.evaluate(FETCH, root + path) == "blocked"
    assert tenant.evaluate(SOCKET, f"ws://localhost:{pages.port}/v1/leases/any/exec") == "refused"


def test_a_tenants_page_cannot_plant_a_session(pages: Pages) -> None:
    for domain in ("; domain=localhost", ""):
        pages.tenant.evaluate("text => { document.cookie = text }", f"sparewatt_session=planted; path=/{domain}")
    assert pages.dashboard.evaluate(FETCH, "/v1/me") == 200
    sent = pages.dashboard.context.cookies(f"{pages.dashboard_url}/")
    assert [cookie["value"] for cookie in sent if cookie["value"] == "planted"] == []


def test_a_tenants_page_reads_nothing_of_another_tenant(pages: Pages) -> None:
    assert pages.tenant.evaluate(FETCH, f"http://other.localhost:{pages.port}/") == "blocked"
    assert pages.tenant.evaluate(FETCH, f"http://tenant.localhost:{pages.port}/") == 404, "its own it may read"


def test_the_dashboard_is_not_served_under_a_tenants_name(pages: Pages) -> None:
    for path in ("/", "/login", "/v1/network", "/openapi.json", "/healthz"):
        answer = pages.tenant.goto(f"http://tenant.localhost:{pages.port}{path}")
        assert answer is not None
        assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")

"""Steps that several tests share: sign up by the form, and send a question in the playground."""

from __future__ import annotations

import secrets

from playwright.sync_api import Page

from tests.e2e.conftest import Window
from tests.integration.networks import Network
from tests.integration.people import PASSWORD


def sign_up(window: Window, network: Network) -> Page:
    """Sign up as a new account. The page is the playground then."""
    page = window.open(network, "/signup")
    page.get_by_label("E-mail").fill(f"p-{secrets.token_hex(6)}@example.org")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign up", exact=True).click()
    page.wait_for_url("**/playground")
    return page


def ask(page: Page, question: str) -> None:
    """Send a question and wait until the answer is complete."""
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("[data-testid=answer][data-state=done]").last.wait_for()

"""The steps of an order on the page."""

from __future__ import annotations

from playwright.sync_api import Page


def go_to(page: Page, step: str) -> None:
    """What, Machine, Inside or Price."""
    page.get_by_test_id("wizard").get_by_role("button", name=step).click()

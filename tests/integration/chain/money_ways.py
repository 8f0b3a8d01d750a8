"""The seven ways that money takes, asked of a real gateway; each returns when its end is final."""

from __future__ import annotations

from tests.integration.chain.killed_network import DEPOSIT_USD, DOLLAR, EXIT_S, RECEIVER, UNBOND_S, KilledNetwork


def deposit(network: KilledNetwork, reference: str) -> None:
    network.deposits.add(reference)
    network.ask("POST", "/v1/credits/deposit", {"usd": DEPOSIT_USD, "adapter": "chain", "id": reference})


def order(network: KilledNetwork, name: str) -> None:
    """A lease's deposit: a dollar, for an hour."""
    before = network.on_chain("escrow")
    asked = {"image": "ghcr.io/me/train:1", "policy": {"max_hourly": 1}, "duration": "1h", "name": name, "id": name}
    network.ask("POST", "/v1/leases", asked)

    def is_open() -> bool:
        phase = network.ask("GET", f"/v1/leases/{name}").json()["phase"]
        return bool(phase == "open") and network.on_chain("escrow") == before + DOLLAR

    network.until(is_open, "the deposit is not in escrow")


def refund(network: KilledNetwork, name: str) -> None:
    """Of that order, which is open."""
    before = network.on_chain("escrow")
    network.ask("POST", f"/v1/leases/{name}/cancel", {"id": f"cancel-{name}"})
    network.until(lambda: network.on_chain("escrow") == before - DOLLAR, "nothing was refunded")


def withdraw(network: KilledNetwork, reference: str) -> None:
    """What contracts owe, back into credits."""
    network.ask("POST", "/v1/credits/collect", {"id": reference})
    is_back = lambda: network.on_chain("owed") == network.on_chain("wallet") == 0  # noqa: E731
    network.until(is_back, "something is still owed")


def bond(network: KilledNetwork, reference: str) -> None:
    network.ask("POST", f"/v1/providers/{network.provider}/bond", {"usd": "1", "id": reference})


def unbond(network: KilledNetwork, reference: str) -> None:
    before = network.on_chain("bonds")
    network.ask("POST", f"/v1/providers/{network.provider}/unbond", {"usd": "1", "id": reference})
    network.pass_time(UNBOND_S)

    def is_back() -> bool:
        network.hurry()
        return network.on_chain("bonds") == before - DOLLAR and network.on_chain("wallet") == 0

    network.until(is_back, "the bond did not come back")


def leave(network: KilledNetwork, reference: str) -> None:
    """An exit: credits out to a wallet."""
    before = network.paid_out()
    network.ask("POST", "/v1/credits/withdraw", {"usd": "1", "to": RECEIVER, "id": reference})
    network.pass_time(EXIT_S)

    def is_paid() -> bool:
        network.hurry()
        return network.paid_out() == before + DOLLAR and network.on_chain("exits") == 0

    network.until(is_paid, "the exit is not paid")

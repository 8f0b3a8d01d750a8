"""A starting validator finds its double, and registers the key that replaces a retired one."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.errors import ChainReverted, ChainUnavailable, StartupError
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.testing.clocks import InstantClock
from sparewatt.validator.registration import Registration
from tests.unit.validator.test_membership import OTHER, STAKE, URL, VOTES, Registry, a_membership


class Host:
    """What answers at the registered URL."""

    def __init__(self, body: bytes | None) -> None:
        self.body = body
        self.asked: list[str] = []

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
        assert within_s > 0 < bytes_max
        self.asked.append(url + path)
        if self.body is None:
            raise NoAnswer("nobody")
        return self.body


def a_registration(registry: Registry, *, retired: frozenset[str] = frozenset()) -> Registration:
    return Registration(a_membership(registry), VOTES, retired, InstantClock())


def status_of(vote_key: str) -> bytes:
    return msgspec.json.encode({"vote_key": vote_key, "run_id": "0011"})


async def test_a_double_at_the_registered_url_is_refused() -> None:
    host = Host(status_of(VOTES.address.upper().replace("0X", "0x")))
    with pytest.raises(StartupError, match="would be slashed"):
        await a_registration(Registry(vote_key=VOTES.address, url=URL, stake=STAKE)).require_alone(host)
    assert host.asked == [URL + "/v1/validator"]


@pytest.mark.parametrize("body", [None, b"", b"\xff", b"[]", status_of(OTHER.address)])
async def test_whatever_else_answers_there_is_no_double(body: bytes | None) -> None:
    await a_registration(Registry(vote_key=VOTES.address, url=URL, stake=STAKE)).require_alone(Host(body))


async def test_a_key_that_is_not_registered_has_no_double() -> None:
    host = Host(status_of(VOTES.address))
    for registry in (Registry(), Registry(vote_key=OTHER.address, url=URL), Registry(vote_key=VOTES.address)):
        await a_registration(registry).require_alone(host)
    assert host.asked == []


async def test_the_key_that_replaces_a_retired_one_is_registered_once() -> None:
    registry = Registry(vote_key=OTHER.address, url=URL, stake=STAKE)
    registration = a_registration(registry, retired=frozenset({OTHER.address}))
    await registration.renew()
    await registration.renew()
    assert (registry.vote_key, registry.done) == (VOTES.address, ["set_vote_key"])


async def test_a_key_that_was_never_used_here_is_not_replaced() -> None:
    """Another validator of the same operator may be using it."""
    registry = Registry(vote_key=OTHER.address, url=URL, stake=STAKE)
    await a_registration(registry, retired=frozenset({"0x" + "99" * 20})).renew()
    await a_registration(Registry()).renew()
    assert (registry.vote_key, registry.done) == (OTHER.address, [])


async def test_trouble_of_the_chain_is_waited_out_and_a_refusal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(vote_key=OTHER.address, url=URL, stake=STAKE)
    errors = [ChainUnavailable("away"), ChainUnavailable("away")]
    send = Registry.send

    async def sends(self: Registry, call: object) -> None:
        if errors:
            raise errors.pop()
        await send(self, call)  # type: ignore[arg-type]

    monkeypatch.setattr(Registry, "send", sends)
    registration = a_registration(registry, retired=frozenset({OTHER.address}))
    await registration.renew()
    assert registry.vote_key == VOTES.address
    registry.vote_key = OTHER.address
    errors.append(ChainReverted("JAILED"))  # type: ignore[arg-type]
    await registration.renew()
    assert registry.vote_key == OTHER.address


async def test_joining_goes_on_until_the_stake_weighs() -> None:
    registry = Registry(early=1)
    await a_registration(registry).join(url=URL, stake_uusd=STAKE)
    assert (registry.vote_key, registry.stake, registry.pending) == (VOTES.address, STAKE, 0)

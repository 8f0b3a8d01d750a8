"""One machine between its two markets, put together: the account of all agents, and inference that gives way to leases.

A node's leases and bids go through its account. What the model server sits on is watched, so that a card is offered
only if it can be handed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.log import Logger
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.card_users import StoppableServer
from sparewatt.node.leases.machine.cards import leasable_cards
from sparewatt.node.leases.machine.folder import MachineFolder, default_machine_dir
from sparewatt.node.leases.machine.giving_way import GivingWay, Inference, ServerPlace, lease_in_the_way
from sparewatt.node.leases.machine.inference_pay import InferencePay
from sparewatt.node.leases.machine.machine_account import MachineAccount
from sparewatt.node.leases.machine.owner_command import run_owner_command
from sparewatt.node.leases.machine.shared_room import SharedRoom
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.leases.runtime.model import EngineUnavailable
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.node.settings import NodeSettings

_log = Logger("sparewatt.node")
ORPHANS_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePart:
    """What the node's inference has of the machine."""

    inference: Inference
    used_cards: Callable[[], frozenset[str]]
    """Cards on which something sits, as just read."""
    is_local: bool
    """Whether the model server runs on this machine."""
    own_server: StoppableServer | None = None
    """One that the agent runs itself."""
    url: str = ""
    pay: InferencePay | None = None
    """What it earned; None: nobody counts."""


class NoInference:
    """Implements Inference for leases without a model server beside them."""

    def stop_taking(self, order_id: str) -> None: ...

    def break_off(self, order_id: str) -> int:  # noqa: ARG002 (there is nothing to break off)
        return 0

    def take_again(self) -> None: ...


NO_INFERENCE = InferencePart(inference=NoInference(), used_cards=frozenset, is_local=False)


@dataclass(slots=True, kw_only=True, eq=False)
class MachineMarket:
    settings: NodeSettings
    node: str
    """The address of the agent's key."""
    cards: int
    part: InferencePart
    rules: Callable[[], LeaseRules]
    whole: Callable[[], LeaseCapacity]
    """What the owner offers to leases."""
    leasable: Callable[[], LeaseCapacity]
    """What leases may have of the machine, whoever serves them."""
    is_offering: Callable[[], bool]
    clock: Clock
    notify: Callable[[str], None]
    account: MachineAccount = field(init=False)
    giving_way: GivingWay = field(init=False)
    _served_cards: frozenset[str] = field(init=False, default=frozenset())
    """Those that the model server was last seen on, when no lease had them."""

    def __post_init__(self) -> None:
        self.account = MachineAccount(
            folder=MachineFolder(self.settings.machine_dir or default_machine_dir()),
            node=self.node,
            clock=self.clock,
            notify=self.notify,
            machine=self.leasable,
            is_offering=self.is_offering,
            engine=engine_name(self.settings.container_socket),
            serving=self._serving,
            leasable_gpus=lambda: len(self.leasable_cards()),
            on_change=self._check,
        )
        self.giving_way = GivingWay(
            inference=self.part.inference,
            needed_by=self._needed_by,
            used_cards=self.part.used_cards,
            clock=self.clock,
            notify=self.notify,
            card_user=self.card_user,
        )

    def _check(self) -> None:
        self.giving_way.check()

    def room(self) -> SharedRoom:
        return SharedRoom(
            account=self.account, whole=self.whole, cards=self.leasable_cards, make_free=self.giving_way.make_free
        )

    def card_user(self) -> StoppableServer | None:
        """What can be stopped for a lease: by the owner's commands, else the agent's own server."""
        free, restore = self.rules().free_command, self.rules().restore_command
        if free is None or restore is None:
            return self.part.own_server
        data_dir = self.settings.data_dir
        return StoppableServer(
            data_dir=data_dir,
            url=self.part.url,
            stop=lambda: run_owner_command(free, data_dir=data_dir),
            start=lambda: run_owner_command(restore, data_dir=data_dir),
        )

    def leasable_cards(self) -> list[str]:
        return leasable_cards(
            self.cards,
            used=self.part.used_cards(),
            leased=self._leased_cards(),
            served_by_others=self.account.cards_served_by_others(),
            can_free=self.card_user() is not None,
        )

    def _leased_cards(self) -> frozenset[str]:
        return frozenset(card for cards in self.account.cards.values() for card in cards)

    def _serving(self) -> tuple[str, ...]:
        """Of a card that a lease has, nobody can tell what else sits on it."""
        if not self.part.is_local or not self.cards:
            return ()
        leased = self._leased_cards() | {card for each in self.account.entries_of_others() for card in each.cards}
        self._served_cards = (self._served_cards & leased) | (self.part.used_cards() - leased)
        return tuple(sorted(self._served_cards))

    def _needed_by(self) -> str | None:
        place = ServerPlace(
            is_local=self.part.is_local,
            cards=frozenset(str(number) for number in range(self.cards)),
            used=self._served_cards,
        )
        return lease_in_the_way(self.account.own_entries(), place, offered=self.whole())

    async def look_after_orphans(self, runtime: LeaseRuntime) -> None:
        """Leases of agents that are no more count until their containers are seen to be gone."""
        while True:
            await sleep_until(self.clock, self.clock.now_s() + ORPHANS_S)
            if not self.account.has_orphans():
                continue
            try:
                self.account.note_containers(await runtime.containers())
            except EngineUnavailable as error:  # what cannot be seen is not gone
                _log.warning("engine_unavailable", why=str(error)[:200])

    def status(self) -> dict[str, Any]:
        """Ready for JSON."""
        pay = self.part.pay
        return self.account.status() | {
            "gives_way_to": self.giving_way.order_id,
            "inference": pay.status() if pay is not None else None,
        }

    def earned_uusd(self) -> int:
        """By inference, per hour; 0: nothing, or it is not known."""
        return (self.part.pay.hourly_uusd() or 0) if self.part.pay is not None else 0


def engine_name(socket: Path | None) -> str:
    """The same for agents that use the same engine, as far as that is certain."""
    named = socket or os.environ.get("DOCKER_HOST") or "usual"
    return f"{named} of {os.geteuid()}" if hasattr(os, "geteuid") else str(named)

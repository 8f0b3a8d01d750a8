"""Everything that a node does about leases, put together: rules, capacity, bids, heartbeats and the owner's chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import msgspec

from sparewatt.core.address_rules import names_loopback
from sparewatt.core.clock import Clock
from sparewatt.core.money import parse_usd
from sparewatt.core.rng import Rng
from sparewatt.node.hardware.gpu import GB, Hardware
from sparewatt.node.leases.access.link_proxies import LinkProxies
from sparewatt.node.leases.access.link_proxy import GatewayAddress
from sparewatt.node.leases.bid_store import BidStore
from sparewatt.node.leases.bidder import LeaseBidder
from sparewatt.node.leases.capacity import UINT16_MAX, LeaseCapacity, measure_capacity, offered_capacity
from sparewatt.node.leases.chain_check import ChainCheck
from sparewatt.node.leases.heartbeats import Heartbeats
from sparewatt.node.leases.machine.machine_market import NO_INFERENCE, InferencePart, MachineMarket
from sparewatt.node.leases.offer_rules import LeaseRules, MachineFacts, check_rules, standing_offer
from sparewatt.node.leases.placed.departure import Departure
from sparewatt.node.leases.placed.lease_files import LeaseFiles
from sparewatt.node.leases.placed.lease_runner import LeaseRunner
from sparewatt.node.leases.placed.lease_worker import LeaseTools, LeaseWorker
from sparewatt.node.leases.placed.updates import is_acceptable
from sparewatt.node.leases.rules_file import read_lease_rules, write_lease_rules
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.node.leases.runtime_watch import RuntimeWatch
from sparewatt.node.leases.validator_client import HttpValidatorCalls
from sparewatt.node.settings import NodeSettings
from sparewatt.policy.market_ids import NONE, OTHER_GPU, gpu_model_id_of
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_offer import LeaseOffer
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport, LeaseTask
from sparewatt.protocol.signing import SigningKey

NANO_PER_MICRO = 1_000
NO_LIMITS = (None, None, None, None)


class LeaseService:
    def __init__(
        self,
        hardware: Hardware,
        *,
        settings: NodeSettings,
        key: SigningKey,
        clock: Clock,
        rng: Rng,
        notify: Callable[[str], None],
        current_settings: Callable[[], NodeSettings],
        is_paused: Callable[[], bool],
        runtime: LeaseRuntime | None = None,
        inference: InferencePart = NO_INFERENCE,
        say: Callable[[LeaseAct | LeaseReport], None] = lambda _said: None,
        on_offer_changed: Callable[[], None] = lambda: None,
        gateway_ports: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`say`: to every gateway process with a link. `gateway_ports`: of these processes. Raises StartupError
        if the saved rules cannot be read."""
        self._pay = inference.pay
        self._data_dir = settings.data_dir
        self._hardware = hardware
        self._current_settings = current_settings
        self._bids_untried = settings.leases_untried
        self.runtime = runtime
        self.containers = RuntimeWatch(
            runtime=runtime,
            is_offering=lambda: current_settings().leases,
            clock=clock,
            notify=notify,
            on_tried=on_offer_changed,
        )
        self.rules = read_lease_rules(settings.data_dir)
        self._measured = measure_capacity(gpus=len(hardware.gpus), data_dir=settings.data_dir)
        host = urlsplit(settings.gateway_url).hostname or ""
        calls = self._calls = HttpValidatorCalls(gateway_is_local=names_loopback(host))
        self.chain = ChainCheck.at(settings.chain_url, clock=clock) if settings.chain_url else None
        self.market = MachineMarket(
            settings=settings,
            node=key.address,
            cards=len(hardware.gpus),
            part=inference,
            rules=lambda: self.rules,
            whole=self._whole,
            leasable=lambda: offered_capacity(self._measured, wanted=NO_LIMITS),
            is_offering=lambda: current_settings().leases,
            clock=clock,
            notify=notify,
        )
        self.runner: LeaseRunner | None = None
        self.departure = Departure(data_dir=settings.data_dir, workers=self._workers, clock=clock)

        def takes_none() -> bool:
            return is_paused() or self.departure.is_leaving

        if runtime is not None:
            tools = LeaseTools(
                runtime=runtime,
                key=key,
                room=self.market.room(),
                files=LeaseFiles(settings.data_dir),
                clock=clock,
                say=say,
                notify=notify,
                proxies=LinkProxies(gateway=GatewayAddress.of(settings.gateway_url), ports=gateway_ports, clock=clock),
                may_claim=lambda: current_settings().leases and self.runs_containers and not takes_none(),
                accepts_update=lambda checked, update: (
                    current_settings().leases
                    and not takes_none()
                    and is_acceptable(update, checked, self.rules, self.machine(current_settings()))
                ),
                placed_term=self.chain.placed_term if self.chain is not None else None,
            )
            self.runner = LeaseRunner(tools=tools, facts=lambda: self.bidder.facts)
        self.bidder = LeaseBidder(
            reservations=self.market.account,
            take_task=self._take_task,
            key=key,
            store=BidStore(settings.data_dir),
            calls=calls,
            clock=clock,
            rng=rng,
            notify=notify,
            machine=lambda: self.machine(current_settings()),
            rules=lambda: self.rules,
            is_offering=lambda: current_settings().leases,
            is_paused=takes_none,
            can_start=lambda: self.promises,
            wallet=lambda: current_settings().lease_wallet,
            chain=self.chain,
        )
        self.heartbeats = Heartbeats(
            key=key,
            calls=calls,
            clock=clock,
            rng=rng,
            facts=self._heard_facts,
            height=self.bidder.height,
            held=self._held,
            is_offering=lambda: current_settings().leases,
        )

    async def restore(self) -> None:
        """What was promised before a restart counts again, before the node joins: inference gives way to it."""
        await self.bidder.restore()
        if self.runner is not None:
            await self.runner.restore()
        self.market.account.look()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._calls.close)
            if self.chain is not None:
                stack.push_async_callback(self.chain.close)
            if self.runtime is not None:
                stack.push_async_callback(self.runtime.close)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.bidder.run())
                tasks.create_task(self.market.account.run())
                tasks.create_task(self.market.giving_way.run())
                if self._pay is not None:
                    tasks.create_task(self._pay.run())
                if self.runtime is not None:
                    tasks.create_task(self.market.look_after_orphans(self.runtime))
                tasks.create_task(self.heartbeats.run())
                tasks.create_task(self.containers.run())
                if self.runner is not None:
                    tasks.create_task(self.runner.run())
                    tasks.create_task(self.departure.run())
                if self.chain is not None:
                    tasks.create_task(self.chain.run())

    @property
    def runs_containers(self) -> bool:
        """Whether it was proven that they can be run here within their limits."""
        return self.containers.ability is not None and self.containers.ability.limits

    @property
    def promises(self) -> bool:
        """Whether it bids: what cannot be started costs its renter time, and its provider a bond."""
        return self.runs_containers or self._bids_untried

    def _take_task(self, task: LeaseTask) -> None:
        """A machine that runs no containers keeps what it promised, and starts nothing; gateways say it again."""
        if self.runner is not None and (self.runs_containers or task.order_id in self.runner.workers):
            self.runner.on_task(task)

    def _workers(self) -> Iterable[LeaseWorker]:
        return self.runner.workers.values() if self.runner is not None else ()

    def _heard_facts(self) -> MarketFacts | None:
        """Until a gateway speaks, as stored with what is held: validators have to hear of it all the same."""
        return self.bidder.facts or (self.runner.stored_facts() if self.runner is not None else None)

    def _whole(self) -> LeaseCapacity:
        return offered_capacity(self._measured, wanted=self.rules.limits())

    def _held(self) -> set[tuple[bytes, int]]:
        """Won, and claimed."""
        claimed = self.runner.held() if self.runner is not None else []
        return {*self.bidder.held(), *claimed}

    def machine(self, settings: NodeSettings) -> MachineFacts:
        gpus = self._hardware.gpus
        return MachineFacts(
            measured=self._measured,
            hourly_uusd=-(-parse_usd(settings.hourly_usd) // NANO_PER_MICRO),
            gpu_model=(gpu_model_id_of(self._hardware.gpu) or OTHER_GPU) if gpus else NONE,
            earned_uusd=self.market.earned_uusd(),
            vram_gb=min((min(UINT16_MAX, gpu.vram_bytes // GB) for gpu in gpus), default=0),
        )

    def offer(self, settings: NodeSettings) -> LeaseOffer:
        """What is free now: nothing on a machine that its owner wants back."""
        ability, whole = self.containers.ability, self._whole()
        reserved = whole if self.departure.is_leaving else self.market.account.taken(whole)
        offer = standing_offer(self.rules, self.machine(settings), reserved=reserved)
        if ability is None or not ability.limits:
            return msgspec.structs.replace(offer, runtime=self.promises)
        egress = offer.egress if ability.egress else 0
        return msgspec.structs.replace(offer, disk_kind=ability.disk_kind, egress=egress, runtime=True)

    def set_rules(self, rules: LeaseRules) -> None:
        """Raises InvalidField for what the machine has not, and OSError; then nothing has changed."""
        check_rules(rules, self._measured)
        write_lease_rules(self._data_dir, rules)
        self.rules = rules

    def status(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            **self.bidder.status(),
            "rules": msgspec.to_builtins(self.rules),
            "measured": self._measured._asdict(),
            "machine": self.market.status(),
            "chain_url": self._current_settings().chain_url,
            "containers": self.containers.status(),
            "departure": self.departure.status(),
            "heartbeats": [
                {"validator": vote_key, "heard_at": ear.heard_unix_s, "trouble": ear.trouble}
                for vote_key, ear in self.heartbeats.ears.items()
            ],
        }

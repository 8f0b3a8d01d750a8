"""Executes an owner's commands in the running agent: status, pause, working hours, prices, leases, drain.

`control_socket` carries them. Rules and prices are written to disk before they take effect, so a restart finds them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import SparewattError
from sparewatt.core.money import format_usd
from sparewatt.node.agent import NodeAgent
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.leases.lease_service import LeaseService
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S, OwnerRules, PauseMonitor, write_owner_rules
from sparewatt.node.settings import save_settings

PAUSE_CHECK_S = 1.0
_Usd = Annotated[str, Meta(min_length=1, max_length=40)]


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command. `wishes` belongs to `wish`, the amounts to `price`, the last fields to those about leases."""

    do: Literal["status", "wish", "price", "leases", "lease_offer", "leave", "drain"]
    wishes: OwnerRules | None = None
    hourly_usd: _Usd | None = None
    prompt_usd_per_mtok: _Usd | None = None
    completion_usd_per_mtok: _Usd | None = None
    leases: bool = False
    lease_wallet: Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")] | None = None
    lease_rules: LeaseRules | None = None
    leave_by_unix_s: Annotated[float, Meta(ge=0, le=UNTIL_RESUMED_UNIX_S)] | None = None
    """Of `leave`; None: leases stay after all."""


@dataclass(slots=True, kw_only=True, eq=False)
class OwnerControl:
    backend_url: str
    agent: NodeAgent
    sampler: SensorSampler
    rules: OwnerRules
    leases: LeaseService
    clock: Clock
    notify: Callable[[str], None]
    stop: asyncio.Event
    _pause_monitor: PauseMonitor = field(init=False, default_factory=PauseMonitor)
    _started_unix_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._started_unix_s = self.clock.unix_s()

    async def run(self) -> None:
        """Check clock and sensors once a second: pauses begin and end by themselves."""
        while True:
            self.check_pauses()
            await asyncio.sleep(PAUSE_CHECK_S)

    def check_pauses(self) -> None:
        jobs, (readings, watts) = self.agent.jobs, self.sampler.latest()
        reason = self._pause_monitor.reason(
            self.rules, readings=readings, watts=watts, unix_s=self.clock.unix_s(), now_s=self.clock.now_s()
        )
        if reason == jobs.paused:
            return
        if reason is None:
            self.notify("back to work")
        else:
            running = jobs.count()
            self.notify(f"paused: {reason}" + (f"; {running} running first" if running else ""))
        jobs.paused = reason
        self.agent.inventory.note_load_changed()

    def answer(self, body: bytes) -> dict[str, Any]:
        """To one line of JSON; `error` has in words what was wrong with it."""
        try:
            return self._execute(msgspec.json.decode(body, type=ControlRequest))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return {"error": f"The node does not understand this: {error}. Is it another version?"}
        except SparewattError as error:
            return {"error": error.message}
        except OSError as error:
            return {"error": f"The node cannot write to its data directory: {error.strerror}."}

    def _execute(self, request: ControlRequest) -> dict[str, Any]:
        match request.do:
            case "status":
                pass
            case "wish":
                self._set_rules(request.wishes or OwnerRules())
            case "price":
                self._set_prices(request)
            case "leases":
                self._set_leases(request)
            case "lease_offer":
                self._set_lease_offer(request)
            case "leave":
                self._set_departure(request.leave_by_unix_s)
            case "drain":
                self.stop.set()
        return {"status": self.status()}

    def _set_rules(self, rules: OwnerRules) -> None:
        write_owner_rules(self.agent.inventory.settings.data_dir, rules)
        self.rules = rules
        self.check_pauses()

    def _set_prices(self, request: ControlRequest) -> None:
        """Prices are set together: a price per token that is left out follows from the hour again."""
        inventory = self.agent.inventory
        settings = dataclasses.replace(
            inventory.settings,
            hourly_usd=request.hourly_usd or inventory.settings.hourly_usd,
            prompt_usd_per_mtok=request.prompt_usd_per_mtok,
            completion_usd_per_mtok=request.completion_usd_per_mtok,
        )
        inventory.set_terms(settings)
        save_settings(settings)
        self.notify("new prices")

    def _set_leases(self, request: ControlRequest) -> None:
        inventory = self.agent.inventory
        settings = dataclasses.replace(inventory.settings, leases=request.leases, lease_wallet=request.lease_wallet)
        save_settings(settings)
        inventory.set_terms(settings)
        self.notify("offers leases" if request.leases else "offers no leases")

    def _set_lease_offer(self, request: ControlRequest) -> None:
        inventory = self.agent.inventory
        settings = dataclasses.replace(inventory.settings, leases=request.leases)
        if request.lease_rules is not None:
            self.leases.set_rules(request.lease_rules)
        save_settings(settings)
        inventory.set_terms(settings)
        self.notify("offers leases by new rules" if request.leases else "offers no leases")

    def _set_departure(self, by_unix_s: float | None) -> None:
        departure, inventory = self.leases.departure, self.agent.inventory
        if by_unix_s is None:
            departure.cancel()
        else:
            departure.begin(by_unix_s)
            departure.look()
        inventory.set_terms(inventory.settings)
        self.notify("leases stay" if by_unix_s is None else "takes no leases any more; those that run get notice")

    def status(self) -> dict[str, Any]:
        agent, inventory, rules = self.agent, self.agent.inventory, self.rules
        specs, settings, load = inventory.specs, inventory.settings, agent.jobs.load()
        readings, watts = self.sampler.latest()
        return {
            "id": agent.key.address,
            "name": specs.name,
            "region": specs.region,
            "version": __version__,
            "gateway": settings.gateway_url,
            "state": self._state(),
            "paused": agent.jobs.paused,
            "joined_at": agent.joined_unix_s,
            "last_trouble": agent.last_trouble,
            "started_at": self._started_unix_s,
            "server": {
                "kind": specs.backend,
                "url": self.backend_url,
                "trouble": inventory.trouble,
                "facts": msgspec.to_builtins(inventory.facts),
            },
            "measuring": inventory.measuring,
            "running": load.running,
            "queued": load.queued,
            "foreign": load.foreign,
            "slots": specs.slots,
            "kv_used": load.kv_used,
            "models": msgspec.to_builtins(specs.models),
            "gpu": specs.gpu,
            "vram_bytes": specs.vram_bytes,
            "gpus": msgspec.to_builtins(specs.gpus),
            "readings": msgspec.to_builtins(readings),
            "power_watts": watts,
            "hourly_usd": format_usd(specs.hourly_price_nano),
            "prompt_usd_per_mtok": settings.prompt_usd_per_mtok,
            "completion_usd_per_mtok": settings.completion_usd_per_mtok,
            "price_notices": agent.name_notices.prices,
            "leases": settings.leases,
            "lease_wallet": settings.lease_wallet,
            "lease_market": self.leases.status(),
            "wishes": msgspec.to_builtins(rules),
            "hours": str(rules.hours) if rules.hours else None,
            "pause_ends_at": rules.pause_end_unix_s,
        }

    def _state(self) -> str:
        if self.agent.jobs.draining:
            return "draining"
        if self.agent.joined_unix_s is None:
            return "offline"
        if self.agent.jobs.paused is not None:
            return "paused"
        if self.agent.jobs.leased is not None:
            return "leased"
        return "online" if self.agent.inventory.trouble is None else "no_server"

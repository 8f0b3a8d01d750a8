"""What a node's owner may ask of the running agent: how it is, and a pause, other hours, other prices, an end.

The control socket (`control.py`) carries the questions; this answers them. Wishes and prices are kept on disk before
they count, so that a restart finds them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import SparewattError
from sparewatt.core.money import format_usd
from sparewatt.node.agent import NodeAgent
from sparewatt.node.hardware.sensor_sampler import SensorSampler, as_gpu_reading
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.owner.owner_rules import OwnerRules, write_owner_rules
from sparewatt.node.owner.pause_monitor import PauseMonitor, pause_end_unix_s
from sparewatt.node.saved_settings import save_settings
from sparewatt.node.specs.inventory import Inventory

PAUSE_CHECK_S = 1.0
_Usd = Annotated[str, Meta(min_length=1, max_length=40)]


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question or order. Only the fields of its kind count."""

    do: Literal["status", "wish", "price", "drain"]
    wishes: OwnerRules | None = None
    hourly_usd: _Usd | None = None
    prompt_usd_per_mtok: _Usd | None = None
    completion_usd_per_mtok: _Usd | None = None


class OwnerControl:
    def __init__(
        self,
        *,
        address: str,
        server_url: str,
        agent: NodeAgent,
        inventory: Inventory,
        jobs: NodeJobRunner,
        sensing: SensorSampler,
        wishes: OwnerRules,
        clock: Clock,
        tell: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        self._address = address
        self._server_url = server_url
        self._agent = agent
        self._inventory = inventory
        self._jobs = jobs
        self._sensing = sensing
        self._rules = wishes
        self._clock = clock
        self._notify_owner = tell
        self._stop = stop
        self._pause_monitor = PauseMonitor()
        self._started_unix_s = clock.unix_s()

    async def run(self) -> None:
        """Look at clock and sensors once a second: a pause comes and goes by itself."""
        while True:
            self.check_pauses()
            await asyncio.sleep(PAUSE_CHECK_S)

    def check_pauses(self) -> None:
        readings, watts = self._sensing.latest()
        why = self._pause_monitor.reason(
            self._rules, readings=readings, watts=watts, unix_s=self._clock.unix_s(), now_s=self._clock.now_s()
        )
        if why == self._jobs.paused:
            return
        if why is None:
            self._notify_owner("back to work")
        else:
            running = self._jobs.count()
            self._notify_owner(f"paused: {why}" + (f"; {running} running first" if running else ""))
        self._jobs.paused = why
        self._inventory.note_load_changed()

    def answer(self, body: bytes) -> dict[str, Any]:
        """To one line of JSON; `error` says in words what was wrong with it."""
        try:
            asked = msgspec.json.decode(body, type=ControlRequest)
            return self._execute(asked)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return {"error": f"The node does not understand this: {error}. Is it another version?"}
        except SparewattError as error:
            return {"error": error.message}
        except OSError as error:
            return {"error": f"The node cannot write to its data directory: {error.strerror}."}

    def _execute(self, asked: ControlRequest) -> dict[str, Any]:
        match asked.do:
            case "status":
                pass
            case "wish":
                self._set_rules(asked.wishes or OwnerRules())
            case "price":
                self._set_prices(asked)
            case "drain":
                self._stop.set()
        return {"status": self.status()}

    def _set_rules(self, wishes: OwnerRules) -> None:
        write_owner_rules(self._inventory.settings.data_dir, wishes)
        self._rules = wishes
        self.check_pauses()

    def _set_prices(self, asked: ControlRequest) -> None:
        """Prices go together: what is not said is as it follows from the rest."""
        settings = dataclasses.replace(
            self._inventory.settings,
            hourly_usd=asked.hourly_usd or self._inventory.settings.hourly_usd,
            prompt_usd_per_mtok=asked.prompt_usd_per_mtok,
            completion_usd_per_mtok=asked.completion_usd_per_mtok,
        )
        self._inventory.set_prices(settings)
        save_settings(settings)
        self._notify_owner("new prices")

    def status(self) -> dict[str, Any]:
        specs, load = self._inventory.specs, self._jobs.load()
        readings, watts = self._sensing.latest()
        return {
            "id": self._address,
            "name": specs.name,
            "region": specs.region,
            "version": __version__,
            "gateway": self._inventory.settings.gateway_url,
            "state": self._state(),
            "paused": self._jobs.paused,
            "joined_at": self._agent.joined_unix_s,
            "last_trouble": self._agent.last_trouble,
            "started_at": self._started_unix_s,
            "server": {"kind": specs.backend, "url": self._server_url, "trouble": self._inventory.trouble},
            "measuring": self._inventory.measuring,
            "running": load.running,
            "queued": load.queued,
            "foreign": load.foreign,
            "slots": specs.slots,
            "kv_used": load.kv_used,
            "models": [msgspec.to_builtins(model) for model in specs.models],
            "gpu": specs.gpu,
            "vram_bytes": specs.vram_bytes,
            "gpus": [msgspec.to_builtins(gpu) for gpu in specs.gpus],
            "readings": [msgspec.to_builtins(as_gpu_reading(reading)) for reading in readings],
            "power_watts": watts,
            "hourly_usd": format_usd(specs.hourly_price_nano),
            "prompt_usd_per_mtok": self._inventory.settings.prompt_usd_per_mtok,
            "completion_usd_per_mtok": self._inventory.settings.completion_usd_per_mtok,
            "wishes": msgspec.to_builtins(self._rules),
            "hours": str(self._rules.hours) if self._rules.hours else None,
            "pause_ends_at": pause_end_unix_s(self._rules),
        }

    def _state(self) -> str:
        if self._jobs.draining:
            return "draining"
        if self._agent.joined_unix_s is None:
            return "offline"
        if self._jobs.paused is not None:
            return "paused"
        return "online" if self._inventory.trouble is None else "no_server"

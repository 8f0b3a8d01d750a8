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
from sparewatt.node.agent import Agent
from sparewatt.node.hardware.sensing import Sensing, told
from sparewatt.node.inventory import Inventory
from sparewatt.node.jobs import Jobs
from sparewatt.node.kept_terms import keep_terms
from sparewatt.node.pausing import Pauses, pause_ends
from sparewatt.node.wishes import Wishes, keep_wishes

LOOK_S = 1.0
_Usd = Annotated[str, Meta(min_length=1, max_length=40)]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question or order. Only the fields of its kind count."""

    do: Literal["status", "wish", "price", "drain"]
    wishes: Wishes | None = None
    hourly_usd: _Usd | None = None
    prompt_usd_per_mtok: _Usd | None = None
    completion_usd_per_mtok: _Usd | None = None


class Desk:
    def __init__(
        self,
        *,
        address: str,
        server_url: str,
        agent: Agent,
        inventory: Inventory,
        jobs: Jobs,
        sensing: Sensing,
        wishes: Wishes,
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
        self._wishes = wishes
        self._clock = clock
        self._tell = tell
        self._stop = stop
        self._pauses = Pauses()
        self._started_unix_s = clock.unix_s()

    async def run(self) -> None:
        """Look at clock and sensors once a second: a pause comes and goes by itself."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        readings, watts = self._sensing.latest()
        why = self._pauses.why(
            self._wishes, readings=readings, watts=watts, unix_s=self._clock.unix_s(), now_s=self._clock.now_s()
        )
        if why == self._jobs.paused:
            return
        if why is None:
            self._tell("back to work")
        else:
            running = self._jobs.count()
            self._tell(f"paused: {why}" + (f"; {running} running first" if running else ""))
        self._jobs.paused = why
        self._inventory.report_load()

    def answer(self, body: bytes) -> dict[str, Any]:
        """To one line of JSON; `error` says in words what was wrong with it."""
        try:
            asked = msgspec.json.decode(body, type=Asked)
            return self._do(asked)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return {"error": f"The node does not understand this: {error}. Is it another version?"}
        except SparewattError as error:
            return {"error": error.message}
        except OSError as error:
            return {"error": f"The node cannot write to its data directory: {error.strerror}."}

    def _do(self, asked: Asked) -> dict[str, Any]:
        match asked.do:
            case "status":
                pass
            case "wish":
                self._wish(asked.wishes or Wishes())
            case "price":
                self._price(asked)
            case "drain":
                self._stop.set()
        return {"status": self.status()}

    def _wish(self, wishes: Wishes) -> None:
        keep_wishes(self._inventory.settings.data_dir, wishes)
        self._wishes = wishes
        self.look()

    def _price(self, asked: Asked) -> None:
        """Prices go together: what is not said is as it follows from the rest."""
        settings = dataclasses.replace(
            self._inventory.settings,
            hourly_usd=asked.hourly_usd or self._inventory.settings.hourly_usd,
            prompt_usd_per_mtok=asked.prompt_usd_per_mtok,
            completion_usd_per_mtok=asked.completion_usd_per_mtok,
        )
        self._inventory.set_terms(settings)
        keep_terms(settings)
        self._tell("new prices")

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
            "readings": [msgspec.to_builtins(told(reading)) for reading in readings],
            "power_watts": watts,
            "hourly_usd": format_usd(specs.hourly_price_nano),
            "prompt_usd_per_mtok": self._inventory.settings.prompt_usd_per_mtok,
            "completion_usd_per_mtok": self._inventory.settings.completion_usd_per_mtok,
            "wishes": msgspec.to_builtins(self._wishes),
            "hours": str(self._wishes.hours) if self._wishes.hours else None,
            "pause_ends_at": pause_ends(self._wishes),
        }

    def _state(self) -> str:
        if self._jobs.draining:
            return "draining"
        if self._agent.joined_unix_s is None:
            return "offline"
        if self._jobs.paused is not None:
            return "paused"
        return "online" if self._inventory.trouble is None else "no_server"

"""What a hostile behaviour is: one lie, how it is told, and the bounds on what others may notice of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from sparewatt.core.errors import LinkError
from sparewatt.protocol.link.node_report import Capability, ModelReport, NodeSpecs, Speed
from tests.integration.hostile_nodes.liar import Answer, HostileJob, HostileNode

PROMPT_PRICE_NANO, COMPLETION_PRICE_NANO = 500_000_000, 1_000_000_000
"""Per million tokens, of honest nodes and of those that lie about something else."""
FASTEST = Speed(prefill_tps=1e6, decode_tps=1e6)
WEIGHTS_BYTES = 500_000_000
CHAT: tuple[Capability, ...] = ("chat", "completions", "continue_prefill")
JOINING_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What others may notice at most."""

    success_min: float = 0.995
    """Of their requests, after the first ten."""
    extra_wait_s_max: float = 3.0
    """Of each of their requests, beyond the longest one without any attack."""
    pay_ratio_max: float = 1.1
    """What the liar earned, as a multiple of what an honest node is paid for the text that clients could read."""
    memory_bytes_max: int = 20_000_000
    """By which the gateway's memory grows."""
    share_max: float | None = None
    """Of their requests that the liar answers alone, after the first ten."""
    rejoin_s_max: float | None = None
    """For all honest nodes, restarted while it goes on, to serve again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of it there is: small numbers for every test run, those of the issue for the soak."""

    requests: int
    """Of bystanders, the first ten included."""
    pinned: int
    """Requests of a client that insists on the liar, for what it is paid."""
    sockets: int
    churn: int
    """Nodes that join and leave."""
    storm_s: float
    """For how long a behaviour goes on that sends without being asked, at least."""


SMALL = Scale(requests=30, pinned=2, sockets=400, churn=120, storm_s=1.5)
FULL = Scale(requests=200, pinned=10, sockets=400, churn=400, storm_s=10.0)


async def answer_honestly(job: HostileJob) -> None:
    tokens = job.tokens()
    await job.say(tokens, usage=job.usage(len(tokens)))


@dataclass(slots=True, kw_only=True, eq=False)
class Attack:
    """One behaviour under way, by one account, against one model."""

    root_url: str
    model: str
    honest_names: Sequence[str]
    """Display names of the honest nodes."""
    scale: Scale
    behaviour: Behaviour
    session: aiohttp.ClientSession
    make_token: Callable[[], Awaitable[str]]
    client_key: str
    """Of somebody without nodes."""
    nodes: list[HostileNode] = field(default_factory=list)
    let_in: int = 0
    """How many of its first nodes have joined."""
    notes: list[str] = field(default_factory=list)
    """What else was wrong while it went on, in sentences."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def node_ids(self) -> set[str]:
        return {node.node_id for node in self.nodes}

    async def node(self, specs: NodeSpecs | None = None, answer: Answer | None = None) -> HostileNode:
        """One more, which has not joined yet."""
        made = HostileNode(
            root_url=self.root_url,
            token=await self.make_token(),
            specs=self.behaviour.specs(self) if specs is None else specs,
            answer=answer or self.behaviour.answer,
            session=self.session,
        )
        self.nodes.append(made)
        return made

    async def start(self) -> None:
        for _ in range(self.behaviour.nodes):
            self.let_in += await join(await self.node())
        await asyncio.sleep(self.behaviour.settle_s)

    async def stop(self) -> None:
        async with self.stack:
            await asyncio.gather(*(node.leave() for node in self.nodes))


async def join(node: HostileNode) -> bool:
    """Whether it was let in: a gateway may well refuse."""
    try:
        await node.join()
    except (LinkError, OSError, TimeoutError, aiohttp.ClientError):
        return False
    return True


def model_report(
    model: str,
    *,
    prompt_nano: int = PROMPT_PRICE_NANO,
    completion_nano: int = COMPLETION_PRICE_NANO,
    speed: Speed = FASTEST,
    capabilities: tuple[Capability, ...] = CHAT,
    prefix_cache_tokens: int = 0,
) -> ModelReport:
    return ModelReport(
        id=model,
        state="warm",
        weights_bytes=WEIGHTS_BYTES,
        kv_bytes_per_token=1000,
        prompt_price_nano=prompt_nano,
        completion_price_nano=completion_nano,
        context_length=8192,
        measured=speed,
        capabilities=capabilities,
        prefix_cache_tokens=prefix_cache_tokens,
    )


def node_specs(*models: ModelReport, name: str = "liar", slots: int = 64) -> NodeSpecs:
    return NodeSpecs(
        name=name,
        region="local",
        gpu="NVIDIA H100",
        gpu_count=1,
        vram_bytes=80 << 30,
        tflops=1000.0,
        hourly_price_nano=0,
        slots=slots,
        backend="vllm",
        agent_version="0.1.0",
        models=models,
        bandwidth_bytes_s=3.35e12,
    )


def at_usual_price(attack: Attack) -> NodeSpecs:
    """The fastest there is, at the price of the others."""
    return node_specs(model_report(attack.model))


def for_nothing(attack: Attack) -> NodeSpecs:
    """The fastest there is, and free: by its own word, whom every request should go to."""
    return node_specs(model_report(attack.model, prompt_nano=0, completion_nano=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    name: str
    lie: str
    """What it does, in a sentence."""
    answer: Answer = answer_honestly
    specs: Callable[[Attack], NodeSpecs] = for_nothing
    beside: Callable[[Attack], Awaitable[None]] | None = None
    """What goes on without being asked, until it returns or is cancelled."""
    ends_by_itself: bool = False
    """Whether that is waited for: it comes to an end."""
    nodes: int = 1
    owners: int = 1
    """Accounts that the nodes belong to, by turns."""
    is_paid: bool = False
    """Whether clients that insist on it are asked for, to see what it is paid."""
    settle_s: float = 0.0
    """From joining to the first request of others: for what a gateway looks at every few seconds only."""
    is_alone: bool = False
    """Whether it plays alone: it is about the whole gateway."""
    bounds: Bounds = field(default_factory=Bounds)

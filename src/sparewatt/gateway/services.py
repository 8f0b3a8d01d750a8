"""What the routes of one gateway share, put together once at start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web

from sparewatt.accounts.doors import Doors
from sparewatt.accounts.keys import KeyRing, KeyService
from sparewatt.accounts.limits import RateLimits
from sparewatt.accounts.mail import Mailer
from sparewatt.accounts.people import NothingElse, People, SignupHook
from sparewatt.accounts.sessions import Sessions
from sparewatt.accounts.tokens import JoinTokens
from sparewatt.core.clock import Clock
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.gateway.accounting import Accounting
from sparewatt.gateway.feeds.live import LiveFeed
from sparewatt.gateway.history.keeper import HistoryKeeper
from sparewatt.gateway.kept_answers import KeptAnswers
from sparewatt.gateway.links import LinkDesk
from sparewatt.gateway.metrics.meters import Meters
from sparewatt.gateway.money.desk import MoneyDesk
from sparewatt.gateway.openai.responses.registry import LiveResponses
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.place import ALONE, Place
from sparewatt.gateway.siblings.shared_answers import SharedAnswers
from sparewatt.gateway.siblings.siblings import Siblings
from sparewatt.inference.admission.service import Admission
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import HealthRules, NodeRow, NodeState
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.prices import PriceCaps
from sparewatt.policy.model import ANY
from sparewatt.policy.model import Policy as NetworkPolicy
from sparewatt.store.database import Database


@dataclass(slots=True)
class Services:
    settings: GatewaySettings
    database: Database
    ring: KeyRing
    keys: KeyService
    people: People
    sessions: Sessions
    doors: Doors
    tokens: JoinTokens
    table: NodeTable
    desk: LinkDesk
    admission: Admission
    dispatcher: Dispatcher
    money: MoneyDesk
    health: HealthRules
    clock: Clock
    rng: Rng
    prefix_secret: bytes
    """What keys the hashes of prompts' beginnings; this process's own, and gone with it."""
    started_unix_s: float
    root_url: str
    """The address that people use, without a slash at its end."""
    origins: frozenset[str]
    """Where pages of ours come from, as a browser says it."""
    limits: RateLimits
    prices: PriceCaps
    eligibility: Eligibility
    network_policy: NetworkPolicy = ANY
    """What holds for every request here."""
    accounting: Accounting | None = None
    """None on a network without books."""
    mailer: Mailer | None = None
    responses: LiveResponses = field(default_factory=LiveResponses)
    signup_hook: SignupHook = field(default_factory=NothingElse)
    handle_secret: bytes = b""
    """What keys the names that strangers know nodes by; the same for every gateway of a network."""
    stopping: bool = False
    answers: KeptAnswers = field(default_factory=KeptAnswers)
    """For requests that are sent again."""
    place: Place = ALONE
    """Which of the gateway's processes this is."""
    siblings: Siblings = field(init=False)
    shared_answers: SharedAnswers = field(init=False)
    history: HistoryKeeper = field(init=False)
    live: LiveFeed = field(init=False)
    meters: Meters = field(init=False)

    def __post_init__(self) -> None:
        self.siblings = siblings = Siblings(self.place, clock=self.clock, run=new_id("run", rng=self.rng, n_bytes=5))
        settle = self.dispatcher.settle
        self.history = HistoryKeeper(
            self.table,
            self.database.history,
            self.database.records,
            clock=self.clock,
            siblings=siblings,
            settle=settle,
        )
        self.live = LiveFeed(
            table=self.table,
            dispatcher=self.dispatcher,
            health=self.health,
            clock=self.clock,
            secret=self.handle_secret,
            run=new_id("feed", rng=self.rng, n_bytes=5),
            first_tokens=self.history.first_tokens,
            siblings=siblings,
        )
        self.meters = Meters(lambda model: self.table.entries(model) is not None, clock=self.clock, settle=settle)
        self.shared_answers = SharedAnswers(self.answers, siblings.asker, clock=self.clock, rng=self.rng)
        if self.place.others:
            self.answers.elsewhere = self.shared_answers
        siblings.on_restarted = self.shared_answers.let_go
        siblings.on_matches = self.live.on_elsewhere
        self.dispatcher.on_over = self.count
        self.admission.on_waited = self.meters.queue_wait.observe

    def state_of(self, row: NodeRow) -> NodeState:
        """Also of a node that has its link to another process of this gateway alone."""
        state = state_of(row, now_s=self.clock.now_s(), rules=self.health)
        return NodeState.ONLINE if state is NodeState.OFFLINE and self.siblings.has_link(row.id) else state

    def count(self, records: Sequence[MatchRecord]) -> None:
        """These jobs are over: for the history, for the operator's figures, and for who watches."""
        self.history.count(records)
        self.meters.count(records)
        self.live.show(records)


SERVICES = web.AppKey("services", Services)


def services_of(request: web.Request) -> Services:
    return request.app[SERVICES]

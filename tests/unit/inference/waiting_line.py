"""Jobs that stand in line, and a room whose places the test sets, for tests of admission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, KeyId, ModelId
from sparewatt.core.rng import Rng
from sparewatt.inference.admission.model import AdmissionRequest, AdmissionRules, Priority
from sparewatt.inference.admission.service import AdmissionControl, Ticket
from sparewatt.testing.clocks import ManualClock

MODEL = ModelId("llama-3-8b")
_numbers = count()


def an_applicant(
    key: str = "a",
    cost_tokens: int = 100,
    priority: Priority = Priority.NORMAL,
    *,
    account: str | None = None,
    model: str = MODEL,
    body_bytes: int = 10,
) -> AdmissionRequest:
    """Without an account, the key is the only one of its own."""
    account_id = AccountId(key if account is None else account)
    return AdmissionRequest(account_id, KeyId(key), ModelId(model), cost_tokens, priority, body_bytes)


@dataclass(frozen=True, slots=True)
class Standing:
    """Implements Waiter."""

    job: AdmissionRequest
    number: int


def standing(
    key: str = "a", cost_tokens: int = 100, priority: Priority = Priority.NORMAL, account: str | None = None
) -> Standing:
    return Standing(an_applicant(key, cost_tokens, priority, account=account), next(_numbers))


class FakeCapacity:
    """Implements CapacityView. A started job takes a place until the test gives it back."""

    def __init__(self, free: int = 0, *, nodes: int = 1) -> None:
        self._free = dict.fromkeys([MODEL, ModelId("other")], free)
        self._nodes = nodes

    def free(self, model: ModelId) -> int:
        return self._free.get(model, 0)

    def nodes(self, model: ModelId) -> int:
        return self._nodes if model in self._free else 0

    def subscribe(self, on_freed: Callable[[Iterable[str]], None]) -> None:
        """The tests call it themselves."""

    def change(self, by: int, model: ModelId = MODEL) -> None:
        self._free[model] += by


class FixedChance(Rng):
    """Implements Rng: always the same draw."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


class Desk:
    """Admission before a fake room, and a book of what became of whom."""

    def __init__(
        self, free: int = 0, *, nodes: int = 1, chance: float = 0.5, rules: AdmissionRules | None = None
    ) -> None:
        self.room = FakeCapacity(free, nodes=nodes)
        self.clock = ManualClock()
        self.chance = FixedChance(chance)
        self.admission = AdmissionControl(self.room, clock=self.clock, rng=self.chance, rules=rules)
        self.tickets: list[Ticket] = []
        self.started: list[int] = []
        self.refused: dict[int, SparewattError] = {}

    def come(self, job: AdmissionRequest | None = None) -> int:
        """A job comes; its number."""
        job = job or an_applicant()
        number = len(self.tickets)

        def start() -> None:
            self.started.append(number)
            self.room.change(-1, job.model)

        def refuse(error: SparewattError) -> None:
            assert number not in self.refused
            self.refused[number] = error

        self.tickets.append(self.admission.admit(job, start=start, refuse=refuse))
        return number

    def come_all(self, jobs: Sequence[AdmissionRequest]) -> list[int]:
        return [self.come(job) for job in jobs]

    def make_room(self, places: int = 1, model: ModelId = MODEL) -> None:
        """So many jobs end on a node that has the model."""
        self.room.change(places, model)
        self.admission.on_freed([model])
        self.clock.advance(0)

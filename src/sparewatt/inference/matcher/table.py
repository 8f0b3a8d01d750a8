"""The nodes as this gateway knows them, and the work it has sent them. In memory only; links and Postgres fill it.

A reservation counts a job at the moment of the pick, before the node has heard of it: without that, every job of a
burst would go to the same node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparewatt.core.ids import ModelId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.inference.matcher.model import MatchJob, NodeRow
from sparewatt.protocol.node import NodeLoad, NodeSpecs

SUSPECT_AFTER_FAILURE_S = 45.0
OUTPUT_TOKENS_DEFAULT = 256
OUTPUT_EWMA = 0.1
OUTPUT_TOKENS_LEARNED_MAX = 32_768
"""What one job can teach at most: the count is the node's own word, and it sizes everybody's next job."""
RTT_EWMA = 0.3


@dataclass(slots=True)
class Reservation:
    """One job's place on one node. Released exactly once, however the job ends."""

    node_id: NodeId
    prompt_tokens: int
    output_tokens: int
    made_at_s: float
    reading_prompt: bool = True
    released: bool = False


class NodeTable:
    def __init__(self) -> None:
        self._rows: dict[NodeId, NodeRow] = {}
        self._open: dict[int, Reservation] = {}
        self._typical_output: dict[ModelId, float] = {}

    def __iter__(self) -> Iterator[NodeRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, node_id: NodeId) -> NodeRow | None:
        return self._rows.get(node_id)

    def model_ids(self) -> set[str]:
        """Every model that a known node has, online or not."""
        return {model for row in self._rows.values() for model in row.models}

    def remember(self, node_id: NodeId, specs: NodeSpecs, *, last_seen_unix_s: float | None) -> None:
        """A node known from before this process started; offline until it dials in."""
        if node_id not in self._rows and len(self._rows) < NODES_MAX:
            self._rows[node_id] = NodeRow(id=node_id, specs=specs, last_seen_unix_s=last_seen_unix_s)
            self.set_specs(node_id, specs)

    def connect(self, node_id: NodeId, specs: NodeSpecs, *, now_s: float) -> bool:
        """A node has dialled in. False if the table is full."""
        if node_id not in self._rows and len(self._rows) >= NODES_MAX:
            return False
        row = self._rows.setdefault(node_id, NodeRow(id=node_id, specs=specs))
        row.connected = True
        row.last_heard_s = now_s
        row.suspect_until_s = 0.0
        row.load = NodeLoad()
        self.set_specs(node_id, specs)
        return True

    def disconnect(self, node_id: NodeId, *, unix_s: float) -> None:
        row = self._rows[node_id]
        row.connected = False
        row.last_seen_unix_s = unix_s

    def set_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        row = self._rows[node_id]
        row.specs = specs
        row.models = {model.id: model for model in specs.models}

    def set_load(self, node_id: NodeId, load: NodeLoad, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.load = load
        row.last_heard_s = now_s

    def set_rtt(self, node_id: NodeId, rtt_s: float, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.rtt_s = rtt_s if row.rtt_s == 0.0 else row.rtt_s + RTT_EWMA * (rtt_s - row.rtt_s)
        row.last_heard_s = now_s

    def reserve(self, node_id: NodeId, job: MatchJob, *, now_s: float) -> Reservation:
        row = self._rows[node_id]
        held = Reservation(node_id, job.prompt_tokens, job.output_tokens, made_at_s=now_s)
        self._open[id(held)] = held
        row.own_jobs += 1
        row.own_prompt_tokens += held.prompt_tokens
        row.own_output_tokens += held.output_tokens
        return held

    def prompt_read(self, held: Reservation) -> None:
        """The first token came: this prompt holds up nobody any more."""
        if held.reading_prompt and not held.released:
            held.reading_prompt = False
            self._rows[held.node_id].own_prompt_tokens -= held.prompt_tokens

    def release(self, held: Reservation) -> None:
        if held.released:
            return
        self.prompt_read(held)
        held.released = True
        self._open.pop(id(held), None)
        row = self._rows[held.node_id]
        row.own_jobs -= 1
        row.own_output_tokens -= held.output_tokens

    def expire_reservations(self, *, older_than_s: float, now_s: float) -> int:
        """Give back places that were never released. Zero unless there is a bug; bounded damage if there is."""
        leaked = [held for held in self._open.values() if now_s - held.made_at_s > older_than_s]
        for held in leaked:
            self.release(held)
        return len(leaked)

    def note_success(self, node_id: NodeId, *, model: ModelId, output_tokens: int | None) -> None:
        row = self._rows[node_id]
        row.jobs_done += 1
        row.suspect_until_s = 0.0
        if output_tokens is not None:
            before = self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)
            learned = min(max(output_tokens, 0), OUTPUT_TOKENS_LEARNED_MAX)
            self._typical_output[model] = before + OUTPUT_EWMA * (learned - before)

    def note_failure(self, node_id: NodeId, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.jobs_failed += 1
        row.suspect_until_s = now_s + SUSPECT_AFTER_FAILURE_S

    def typical_output_tokens(self, model: ModelId) -> int:
        return max(1, round(self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)))

"""What a match may know besides the job and the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.model import AllowedNodes, HealthRules, MatchJob
from sparewatt.protocol.link.node_report import ModelReport


class MatchContext(msgspec.Struct, frozen=True):
    now_s: float
    rules: HealthRules
    tried: Collection[NodeId] = frozenset()
    allowed: AllowedNodes | None = None
    """Whom the job's policy leaves; None if it has none."""
    own: Collection[NodeId] = frozenset()
    """The payer's own nodes, where they must not earn what the network pays."""
    held: Mapping[NodeId, int] | None = None
    """Tokens of the prompt's beginning that nodes are believed to hold; None for most jobs."""

    def seen_through(self, allowed: AllowedNodes | None, own: Collection[NodeId]) -> MatchContext:
        """The same moment, for a job that not everybody may have."""
        return MatchContext(self.now_s, self.rules, self.tried, allowed, own, self.held)


def vram_needed_bytes(job: MatchJob, model: ModelReport) -> int:
    """Weights, and keys and values for the whole context of the job (NeuralGrid's minVram)."""
    return model.weights_bytes + model.kv_bytes_per_token * (job.prompt_tokens + job.output_tokens)

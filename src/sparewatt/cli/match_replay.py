"""A replayed match as text: what was computed again, why each bid won or lost, and which faults are proven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparewatt.cli import output
from sparewatt.cli.output import Column, left, prose, right
from sparewatt.market.faults import ProvenFault
from sparewatt.market.match.replay import BidRefusal, Replay, ReplayedBid

ADDRESS_CHARS = 10
USD = 1_000_000


def replay_json(result: Replay, faults: Sequence[ProvenFault]) -> dict[str, Any]:
    return {
        "order_id": "0x" + result.order_id.hex(),
        "attempt": result.attempt,
        "round": result.round,
        "task_hash": "0x" + result.task_hash.hex(),
        "bid_root": "0x" + result.bid_root.hex(),
        "voters": list(result.voters),
        "bids": [
            {
                "provider": bid.provider,
                "outcome": bid.outcome.value,
                "rank": bid.rank,
                "terms": msgspec.to_builtins(bid.terms),
                "pay_uusd": bid.pay_uusd,
                "reason": bid.reason,
                "listed_ppm": bid.listed_ppm,
                "refusals": msgspec.to_builtins(bid.refusals),
            }
            for bid in result.bids
        ],
        "differences": list(result.differences),
        "faults": [{"fault": each.fault.name, "culprits": list(each.culprits), "why": each.why} for each in faults],
    }


def print_replay(replay: Replay, faults: Sequence[ProvenFault]) -> None:
    output.print_facts(
        [
            ("order", f"0x{replay.order_id.hex()}"),
            ("attempt", str(replay.attempt)),
            ("certified", _certified(replay)),
            ("bids in the tree", str(len(replay.leaves))),
            ("bid root", f"0x{replay.bid_root.hex()}"),
            ("task digest", f"0x{replay.task_hash.hex()}"),
        ]
    )
    output.print_title("Bids")
    if replay.bids:
        output.print_table(
            _COLUMNS, replay.bids, may_drop=("listed by", "latency", "reliable"), is_marked=lambda bid: bid.rank == 0
        )
    else:
        output.print_lines(["Nobody bid and nobody declined, as far as these records know."])
    output.print_title("Compared with the certified task")
    output.print_lines(
        replay.differences or ["The same in every field: the result follows from the bids and the order's policy."]
    )
    if faults:
        output.print_title("Proven faults")
        output.print_lines([f"{fault.fault.name} of {', '.join(fault.culprits)}. {fault.why}" for fault in faults])
    if not replay.is_by_chain:
        output.note("Weights, keys and the snapshot are as the record says; they were not compared with the chain.")


def _certified(replay: Replay) -> str:
    if replay.round is None:
        return "no quorum of votes in these records"
    return f"in round {replay.round} by {len(replay.voters)} validators"


def _usd(uusd: int) -> str:
    return f"${uusd / USD:.4f}"


def _refused(refusal: BidRefusal) -> str:
    late = f" by {refusal.late_by_ms} ms" if refusal.late_by_ms else ""
    return f"{refusal.reason}{late} at {refusal.validator[:ADDRESS_CHARS]}"


def _why(bid: ReplayedBid) -> str:
    refused = "; ".join(map(_refused, bid.refusals))
    return " ".join(part for part in (bid.reason, f"({refused})" if refused else "") if part)


_COLUMNS: list[Column[ReplayedBid]] = [
    left("provider", lambda bid: bid.provider[:ADDRESS_CHARS]),
    left("outcome", lambda bid: bid.outcome.value),
    right("price/h", lambda bid: _usd(bid.terms.price_uusd) if bid.terms else output.UNKNOWN),
    right("latency", lambda bid: f"{bid.terms.rtt_ms} ms" if bid.terms else output.UNKNOWN),
    right("reliable", lambda bid: f"{bid.terms.success_ppm / 10_000:.2f}%" if bid.terms else output.UNKNOWN),
    right("score", lambda bid: str(bid.terms.score) if bid.rank is not None and bid.terms else output.UNKNOWN),
    right("pay/h", lambda bid: _usd(bid.pay_uusd) if bid.pay_uusd is not None else output.UNKNOWN),
    right("listed by", lambda bid: f"{bid.listed_ppm / 10_000:.0f}%"),
    prose("why", _why),
]

"""Prints what a node offers for leases, its rules, and the bids and leases that it has."""

from __future__ import annotations

import math
import time
from typing import Any

from sparewatt.cli import output
from sparewatt.cli.output import Column, Fact, left, right
from sparewatt.core.plural import pluralize

Json = dict[str, Any]
UUSD_PER_USD = 1_000_000
MIB_PER_GB = 10**9 / 2**20
"""As order files count."""
BLOCKS_BEHIND_SHOWN = 20
"""The height is read every few seconds; what is less behind may have been read before the newest blocks."""
COUNT_WORDS = {
    "differs": "not confirmed by your chain",
    "not_ready": "before this node was a provider",
    "dropped": "dropped in a flood",
}
RULES_BY_DEFAULT = {"longest_s": 7 * 86_400, "reclaim_s": 3_600, "egress": True}
ENDED_RESULTS = {"standby": "lost, stand-in", "none": "nobody won"}
BID_STATES: dict[str, str] = {"held": "lease held"}


def print_leases(report: Json) -> None:
    output.print_facts(lease_facts(report))
    taken = (report.get("machine") or {}).get("taken")
    if taken:
        output.print_title("What of this machine is promised")
        _print_taken(taken)
    if report.get("bids"):
        output.print_title("Bids and leases")
        _print_bids(report["bids"])
    if report.get("ended"):
        output.print_title("Auctions that ended, the newest first")
        _print_ended(report["ended"][::-1], now_s=time.time())
        output.note("'sparewatt validator replay ORDER' computes one again and says why each bid won or lost.")


def lease_facts(report: Json) -> list[Fact]:
    rules = RULES_BY_DEFAULT | report["rules"]
    offer = report.get("offer")
    return [
        ("Leases", describe_leases(report)),
        *([("Provider", report.get("provider") or "none registered for this node's key")] if offer else []),
        *([("Chain", describe_height(report))] if offer else []),
        ("Prices", _prices(offer or report["rules"])),
        *([("Free", _capacity(offer))] if offer else []),
        *machine_facts(report),
        ("Longest", plain_duration(rules["longest_s"])),
        ("Reclaim", f"{plain_duration(rules['reclaim_s'])} notice"),
        ("Internet", "public addresses" if rules["egress"] else "none for leased programs"),
        *([("Containers", describe_containers(report.get("containers")))] if offer else []),
        *([("Refused", ", ".join(refused))] if (refused := _refused(rules)) else []),
        *([("Validators", _heard(report))] if offer else []),
        *([("Lookups", counts)] if (counts := _counts(report.get("counts") or {})) else []),
    ]


def machine_facts(report: Json) -> list[Fact]:
    """What all agents of this machine have promised of it, and what its inference earns beside a lease."""
    machine = report.get("machine")
    if machine is None:
        return []
    return [
        *([("Account", f"✕ no leases are offered: {machine['trouble']}")] if machine["trouble"] else []),
        *(
            (what, _capacity(_sum_of(found)) + f" ({pluralize(len(found), noun)})")
            for what, state, noun in (("Reserved", "bidding", "bid"), ("Leased", "held", "lease"))
            if (found := [each for each in machine["taken"] if each["state"] == state])
        ),
        *([("Gives way", f"to the lease {machine['gives_way_to'][:18]}")] if machine["gives_way_to"] else []),
        *([("Inference", _weighing(report, machine["inference"]))] if machine["inference"] else []),
    ]


def _sum_of(entries: list[Json]) -> Json:
    return {name: sum(each[name] for each in entries) for name in ("gpus", "cpu_milli", "memory_mib", "disk_mib")}


def _weighing(report: Json, inference: Json) -> str:
    """What the machine earned in inference per hour, beside what a lease of all that is offered would pay."""
    lease_uusd = _whole_price(report)
    lease = "has no price" if lease_uusd is None else f"pays {_usd(lease_uusd)} an hour"
    rule = _following(report)
    hours = inference["served_s"] / 3_600
    if inference["hourly_uusd"] is None:
        return f"{hours:.1f} h served, too little to tell what it earns; a lease of the machine {lease}{rule}"
    return (
        f"earned {_usd(inference['hourly_uusd'])} an hour over {hours:.1f} h, by your prices; "
        f"a lease of the machine {lease}{_difference(inference['hourly_uusd'], lease_uusd)}{rule}"
    )


def _difference(inference_uusd: int, lease_uusd: int | None) -> str:
    """Which of the two markets pays, and by how much; both take the same fee."""
    if lease_uusd is None:
        return ""
    more = lease_uusd - inference_uusd
    if more == 0:
        return ", as much"
    return f", {_usd(abs(more))} {'more' if more > 0 else 'LESS'}"


def _following(report: Json) -> str:
    """Whether leases follow what inference pays; if they do, which of the owner's own prices that has raised."""
    if not report["rules"].get("follow_pay"):
        return "; '--follow-pay' keeps leases from paying less"
    own = {price["gpus"]: price["hourly_uusd"] for price in report["rules"].get("prices") or ()}
    raised = [
        f"{pluralize(price['gpus'], 'GPU')} from {_usd(own[price['gpus']])} to {_usd(price['hourly_uusd'])}"
        for price in (report.get("offer") or {}).get("prices") or ()
        if price["hourly_uusd"] > own.get(price["gpus"], price["hourly_uusd"])
    ]
    left_out = len(report["rules"].get("discounts") or ()) - len((report.get("offer") or {}).get("discounts") or ())
    words = [*([f"raised {', '.join(raised)}"] if raised else [])]
    if left_out > 0 and report.get("offer"):
        words.append(f"left out {pluralize(left_out, 'discount')}")
    return f"; leases follow it{': ' if words else ''}{', '.join(words)}"


def _whole_price(report: Json) -> int | None:
    """Per hour, of all GPUs, or of all processors where there are none."""
    offer, measured = report.get("offer") or {}, report["measured"]
    prices = offer.get("prices") or ()
    if prices:
        best = max(prices, key=lambda price: price["gpus"])
        return int(best["hourly_uusd"] * measured["gpus"] / best["gpus"])
    per_processor = offer.get("cpu_hourly_uusd")
    return None if per_processor is None else int(per_processor * measured["cpu_milli"] / 1_000)


def describe_leases(report: Json) -> str:
    if not report["leases"]:
        return "not offered: sparewatt node leases offer on"
    wallet = report.get("lease_wallet")
    return f"offered, for the wallet {wallet} only" if wallet else "offered"


def describe_containers(found: Json | None) -> str:
    """What the agent found by trying; None: it has not tried yet."""
    if found is None:
        return "not tried yet"
    if not found["limits"]:
        return f"none: {found['troubles'][0]['what']} ('sparewatt node doctor' says more)"
    network = "public addresses" if found["egress"] else "no network"
    disk = "the disk has quotas" if found["disk_kind"] else "the disk is watched"
    return f"{found['engine']}, {network}, {disk}"


def describe_height(market: Json) -> str:
    """Whose word it is: a gateway without a check of the owner's could show a node any chain."""
    height = "no block seen yet" if market.get("height") is None else f"block {market['height']:,}"
    if market.get("height_from") == "own":
        trouble = market.get("chain_trouble")
        behind = (market.get("told_height") or 0) - (market.get("height") or 0)
        if not trouble and behind > BLOCKS_BEHIND_SHOWN:
            return (
                f"{height}, by your own chain's node; {behind:,} behind the gateway's: no bids until it has caught up"
            )
        return f"{height}, by your own chain's node" + (f"; it does not answer now: {trouble}" if trouble else "")
    return f"{height}, by the gateway's word; 'sparewatt node join … --chain-url URL' checks it"


def _prices(offer: Json) -> str:
    words = [
        f"{pluralize(price['gpus'], 'GPU')}: {_usd(price['hourly_uusd'])} an hour"
        for price in offer.get("prices") or ()
    ]
    if offer.get("cpu_hourly_uusd"):
        words.append(f"{_usd(offer['cpu_hourly_uusd'])} an hour and processor, without GPUs")
    words += [
        f"{discount['off_ppm'] / 10_000:g} % off from {plain_duration(discount['least_s'])}"
        for discount in offer.get("discounts") or ()
    ]
    return "; ".join(words) or "by the node's price per hour"


def _usd(uusd: int) -> str:
    return output.format_usd(f"{uusd / UUSD_PER_USD:.6f}")


def _capacity(offer: Json) -> str:
    return (
        f"{offer['gpus']} GPUs, {offer['cpu_milli'] / 1_000:g} processors, "
        f"{_gb(offer['memory_mib'])} GB memory, {_gb(offer['disk_mib'])} GB disk"
    )


def _gb(mib: int) -> str:
    """Rounded down: what is shown may be asked for."""
    return f"{math.floor(mib / MIB_PER_GB * 10) / 10:.1f}"


def _refused(rules: Json) -> list[str]:
    return [*rules.get("refused_images", ()), *rules.get("refused_tenants", ())]


def _heard(report: Json) -> str:
    beats = report.get("heartbeats") or []
    heard = sum(beat["heard_at"] is not None and beat["trouble"] is None for beat in beats)
    trouble = next((beat["trouble"] for beat in beats if beat["trouble"]), None)
    return f"{heard} of {report.get('validators', 0)} hear this node" + (f" ({trouble})" if trouble else "")


def _counts(counts: Json) -> str:
    return ", ".join(f"{number} {COUNT_WORDS.get(name, name.lower())}" for name, number in sorted(counts.items()))


def _print_bids(bids: list[Json]) -> None:
    columns: list[Column[Json]] = [
        left("ORDER", lambda bid: bid["order"][:18]),
        right("ATTEMPT", lambda bid: str(bid["attempt"])),
        left("STATE", lambda bid: BID_STATES.get(bid["state"], str(bid["state"]))),
        right("PRICE/H", lambda bid: _usd(bid["pay_uusd"] or bid["price_uusd"])),
        left("RENTER", lambda bid: bid["renter"][:12]),
    ]
    output.print_table(columns, bids)


def _print_taken(taken: list[Json]) -> None:
    columns: list[Column[Json]] = [
        left("NODE", lambda each: "this one" if each["is_own"] else each["node"][:12]),
        left("ORDER", lambda each: each["order"][:18]),
        left("STATE", lambda each: "leased" if each["state"] == "held" else "reserved"),
        right("GPUS", lambda each: ",".join(each["cards"]) or str(each["gpus"])),
        right("CPUS", lambda each: f"{each['cpu_milli'] / 1_000:g}"),
        right("MEMORY GB", lambda each: _gb(each["memory_mib"])),
        right("DISK GB", lambda each: _gb(each["disk_mib"])),
    ]
    output.print_table(columns, taken)


def _print_ended(ended: list[Json], *, now_s: float) -> None:
    columns: list[Column[Json]] = [
        left("ENDED", lambda each: output.ago(each["unix_s"], now_s=now_s)),
        left("RESULT", lambda each: ENDED_RESULTS.get(each["result"], str(each["result"]))),
        right("YOUR BID/H", lambda each: _usd(each["price_uusd"]) if each["price_uusd"] else output.UNKNOWN),
        right("PAID/H", lambda each: _usd(each["winner_pay_uusd"]) if each["winner_pay_uusd"] else output.UNKNOWN),
        left("ORDER", lambda each: each["order"]),
    ]
    output.print_table(columns, ended)


def plain_duration(seconds: int) -> str:
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{seconds // unit_s}{unit}"
    return f"{seconds}s"

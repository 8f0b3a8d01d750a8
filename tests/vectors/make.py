"""Writes `lease_match.json`: `python -m tests.vectors.make`. Fixed seeds, so that nothing changes by itself."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

from sparewatt.market.bonds import bid_bond_uusd, forfeit_shares, wanted_lock_uusd
from sparewatt.market.coverage import COMPARED, first_shortfall
from sparewatt.market.quorum import (
    is_quorum,
    is_some,
    leader_of_match,
    leader_of_snapshot,
    lower_median,
    most_stake,
)
from sparewatt.market.rule import awards_of, book_of, leaf_of, status_of
from sparewatt.protocol.contracts.match import (
    Bid,
    BidCommit,
    BidTerms,
    Observation,
    Observations,
    OrderTerms,
    Profile,
    Specification,
    held_term,
    inputs_hash_of,
)
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.message_ranges import PPM, spans_of
from sparewatt.protocol.contracts.reasons import BidStatus
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, seal_secret
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import contract_domain, members_of, message_digest, struct_hash
from tests.vectors.encoding import KINDS, to_json

FILE = Path(__file__).with_name("lease_match.json")
TREE_SIZES = (0, 1, 2, 3, 5, 64, 128, 129, 255)
CHAINS = (1, 31_337)
CONTRACT = "0x" + "5a" * 20
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def made() -> dict[str, Any]:
    return {
        "types": list(_types()),
        "domains": [_domain(chain_id) for chain_id in CHAINS],
        "trees": [_tree(count) for count in TREE_SIZES],
        "statuses": list(_statuses()),
        "books": list(_books()),
        "signature": _signature(),
        "coverage": list(_coverage()),
        "medians": list(_medians()),
        "quorums": list(_quorums()),
        "leaders": _leaders(),
        "bonds": list(_bonds()),
        "policy_ranges": [{"member": name, "least": least, "most": most} for name, least, most in spans_of(OrderTerms)],
        "hashes": _hashes(),
        "sealed_secret": _sealed_secret(),
    }


def text() -> str:
    return json.dumps(made(), indent=1, sort_keys=True) + "\n"


def _types() -> Iterator[dict[str, Any]]:
    rng = random.Random(16)
    values: dict[str, Callable[[str], Any]] = {
        "minimum": lambda kind: _value(kind, low=True),
        "maximum": lambda kind: _value(kind, low=False),
        "typical": lambda kind: _typical(kind, rng),
    }
    for kind in KINDS:
        hints = get_type_hints(kind, include_extras=True)
        for name, value in values.items():
            fields = {f.name: value(hints[f.name].__metadata__[0]) for f in dataclasses.fields(kind)}
            message = kind(**fields)
            hashed = "0x" + struct_hash(message).hex()
            yield {
                "type": kind.struct_name or kind.__name__,
                "fields": to_json(message),
                "name": name,
                "struct_hash": hashed,
            }


def _value(kind: str, *, low: bool) -> Any:
    match kind:
        case "address":
            return "0x" + ("00" if low else "ff") * 20
        case "bytes32":
            return bytes(32) if low else b"\xff" * 32
        case "Observation[]":
            return () if low else (_observation(lambda member: _value(member, low=False)),) * 8
        case "address[]" | "bytes32[]":
            return () if low else (_value(kind[:-2], low=False),) * 8
        case _:
            return 0 if low else 2 ** int(kind.removeprefix("uint")) - 1


def _typical(kind: str, rng: random.Random) -> Any:
    match kind:
        case "address":
            return "0x" + rng.randbytes(20).hex()
        case "bytes32":
            return rng.randbytes(32)
        case "Observation[]":
            return tuple(_observation(lambda member: _typical(member, rng)) for _ in range(3))
        case "address[]" | "bytes32[]":
            return tuple(_typical(kind[:-2], rng) for _ in range(3))
        case _:
            return rng.getrandbits(int(kind.removeprefix("uint")) // 2)


def _observation(value: Callable[[str], Any]) -> Observation:
    return Observation(*[value(member.type) for member in members_of(Observation)])


def _domain(chain_id: int) -> dict[str, Any]:
    separator = contract_domain(chain_id=chain_id, contract=CONTRACT).separator()
    return {"chain_id": chain_id, "contract": CONTRACT, "separator": "0x" + separator.hex()}


def _tree(count: int) -> dict[str, Any]:
    """Leaf i is keccak256 of the two bytes of i. Every path is in the digest; those at the ends are written out."""
    tree = merkle_tree([keccak256(i.to_bytes(2, "big")) for i in range(count)])
    places = range(len(tree.levels[0])) if count else ()
    ends = sorted({i for i in (0, count - 1, count) if i in places})
    return {
        "count": count,
        "root": "0x" + tree.root.hex(),
        "paths_digest": "0x" + keccak256(b"".join(b"".join(tree.path(i)) for i in places)).hex(),
        "paths": {str(i): ["0x" + sibling.hex() for sibling in tree.path(i)] for i in ends},
    }


def provider(number: int) -> str:
    return "0x" + number.to_bytes(20, "big").hex()


POLICY = OrderTerms(
    countries=1 << 7,
    tiers=1 << 1,
    gpu_models=1 << 3,
    min_gpu_class=2,
    min_vram_gb=24,
    gpu_units=2,
    compliance=0b101,
    min_uptime_ppm=990_000,
    min_reputation_ppm=900_000,
    max_price_uusd=2_000_000,
    latency_value=500,
    rtt_row=bytes(range(32)),
    payment_rule=1,
    commit_ms=800,
    reveal_ms=400,
    start_s=30,
    standin_s=10,
    down_s=10,
    reclaim_s=600,
    empty_grace_s=600,
    duration_s=3_600,
    only=(provider(1), provider(2)),
    ignore=(provider(3),),
)
GOOD = Profile(
    provider=provider(1),
    epoch=1,
    country=7,
    zone=4,
    tier=1,
    gpu_model=3,
    gpu_class=2,
    vram_gb=24,
    gpu_units=2,
    compliance=0b111,
    uptime_ppm=990_000,
    reputation_ppm=900_000,
)
BENDS: dict[BidStatus, dict[str, Any]] = {
    BidStatus.COUNTRY: {"country": 8},
    BidStatus.TIER: {"tier": 0},
    BidStatus.GPU_MODEL: {"gpu_model": 2},
    BidStatus.GPU_CLASS: {"gpu_class": 1},
    BidStatus.VRAM: {"vram_gb": 23},
    BidStatus.GPU_UNITS: {"gpu_units": 1},
    BidStatus.COMPLIANCE: {"compliance": 0b100},
    BidStatus.UPTIME: {"uptime_ppm": 989_999},
    BidStatus.REPUTATION: {"reputation_ppm": 899_999},
    BidStatus.NOT_IN_ONLY: {"provider": provider(4)},
}


def _statuses() -> Iterator[dict[str, Any]]:
    """Nothing wrong, each thing alone, and each with the next: the first one counts."""
    listed = dataclasses.replace(POLICY, only=())
    cases: list[tuple[OrderTerms, Profile, int]] = [
        (POLICY, GOOD, POLICY.max_price_uusd),
        (POLICY, GOOD, POLICY.max_price_uusd + 1),
        (listed, dataclasses.replace(GOOD, provider=provider(3)), 1),
        (POLICY, dataclasses.replace(GOOD, provider=provider(3)), 1),
    ]
    bends = list(BENDS.values())
    cases += [(POLICY, dataclasses.replace(GOOD, **bend), 1) for bend in bends]
    pairs = itertools.pairwise(bends)
    cases += [(POLICY, dataclasses.replace(GOOD, **first, **second), 1) for first, second in pairs]
    cases += [(POLICY, dataclasses.replace(GOOD, **bends[0]), POLICY.max_price_uusd + 1)]
    for policy, profile, price in cases:
        status = int(status_of(policy, profile, price_uusd=price))
        yield {"policy": to_json(policy), "price_uusd": price, "profile": to_json(profile), "status": status}


def _books() -> Iterator[dict[str, Any]]:
    open_to_all = dataclasses.replace(
        POLICY, countries=0, only=(), ignore=(), min_uptime_ppm=0, min_reputation_ppm=0, max_price_uusd=2**40 - 1
    )
    far = dataclasses.replace(open_to_all, latency_value=2**20 - 1, rtt_row=b"\xff" * 32)
    full, half, least = (PPM, PPM), (PPM // 2, PPM), (1, 1)
    yield _book("one bid", open_to_all, [(1_000, full)])
    yield _book("two equal scores", open_to_all, [(1_000, full)] * 2)
    yield _book("three equal scores", open_to_all, [(1_000, full)] * 3)
    yield _book(
        "the first is paid its own price", dataclasses.replace(open_to_all, payment_rule=0), [(9, full), (5, full)]
    )
    yield _book("p_ok is 1", open_to_all, [(1_000, least), (2_000, full)])
    yield _book("scores at the end of their range", far, [(2**40 - 1, least), (2**40 - 2, least)])
    yield _book("the product of the payment needs more than 64 bits", far, [(1, full), (2**40 - 1, least)])
    yield _book(
        "the cap of the payment", dataclasses.replace(open_to_all, max_price_uusd=1_500), [(900, full), (1_500, half)]
    )
    yield _book("none", open_to_all, [])


def _book(name: str, policy: OrderTerms, bids: list[tuple[int, tuple[int, int]]]) -> dict[str, Any]:
    order_id = keccak256(name.encode())
    profiles, offers = [], []
    for number, (price, (uptime, reputation)) in enumerate(bids, start=1):
        changed: dict[str, Any] = {"provider": provider(number), "uptime_ppm": uptime, "reputation_ppm": reputation}
        profiles.append(dataclasses.replace(GOOD, **changed))
        offers.append(Bid(order_id, 0, provider(number), price, keccak256(b"terms"), keccak256(bytes([number]))))
    book = book_of(order_id, [leaf_of(policy, *pair) for pair in zip(offers, profiles, strict=True)])
    return {
        "name": name,
        "policy": to_json(policy),
        "profiles": [to_json(profile) for profile in profiles],
        "bids": [to_json(bid) for bid in offers],
        "leaves": [to_json(leaf) for leaf in book.leaves],
        "bid_root": "0x" + book.tree.root.hex(),
        "candidates": list(book.candidates),
        "pay_uusd": awards_of(policy, book)[0].price_uusd,
    }


def _signature() -> dict[str, Any]:
    """A good one, and the same with a high s and with v counted from 0: neither is taken."""
    key = SigningKey(keccak256(b"a key for vectors, and nothing else"))
    message = BidCommit(b"\1" * 32, 2, provider(9), b"\2" * 32)
    digest = message_digest(contract_domain(chain_id=CHAINS[1], contract=CONTRACT), message)
    good = key.sign(digest)
    high_s = good[:32] + (CURVE_ORDER - int.from_bytes(good[32:64], "big")).to_bytes(32, "big") + bytes([55 - good[64]])
    return {
        "type": "BidCommit",
        "fields": to_json(message),
        "digest": "0x" + digest.hex(),
        "signer": key.address,
        "good": "0x" + good.hex(),
        "high_s": "0x" + high_s.hex(),
        "v_from_0": "0x" + (good[:64] + bytes([good[64] - 27])).hex(),
    }


SPECIFICATION = Specification(keccak256(b"content"), 2, 8_000, 32_768, 100_000, 1, 3)
TERMS = BidTerms(2, 3, 24, 8_000, 32_768, 100_000, 1, 1, 900, 100, POLICY.reclaim_s)


def _coverage() -> Iterator[dict[str, Any]]:
    """As on the wire. Exactly as much, then one less in each member, then no egress and no GPU asked for."""
    cases = [(SPECIFICATION, TERMS)]
    for name in (*COMPARED, "reclaim_s"):
        change: dict[str, Any] = {name: getattr(TERMS, name) - 1}
        cases.append((SPECIFICATION, dataclasses.replace(TERMS, **change)))
    modest = dataclasses.replace(SPECIFICATION, gpus=0, egress=0)
    cases.append((modest, dataclasses.replace(TERMS, gpus=0, egress=0)))
    for specification, terms in cases:
        yield {
            "specification": write_message(specification),
            "spec_hash": "0x" + struct_hash(specification).hex(),
            "terms": write_message(terms),
            "terms_hash": "0x" + struct_hash(terms).hex(),
            "policy_reclaim_s": POLICY.reclaim_s,
            "shortfall": first_shortfall(specification, terms, POLICY),
        }


def _medians() -> Iterator[dict[str, Any]]:
    """One to four weights, equal values, exactly half of the weight, one unit less, and a value without weight."""
    for observed in (
        [(7, 5)],
        [(7, 5), (9, 5)],
        [(7, 4), (9, 5)],
        [(3, 1), (1, 1), (2, 1)],
        [(4, 1), (1, 1), (3, 1), (2, 1)],
        [(5, 1), (5, 8), (5, 3)],
        [(1, 50), (2, 30), (3, 20)],
        [(1, 49), (2, 31), (3, 20)],
        [(0, 0), (6, 1)],
        [(PPM, 2**63), (0, 2**63 - 1)],
    ):
        yield {"observed": observed, "lower_median": lower_median(observed), "most_stake": most_stake(observed)}


def _quorums() -> Iterator[dict[str, Any]]:
    for total, weight in ((9, 6), (9, 7), (9, 3), (9, 4), (10, 6), (10, 7), (7, 4), (7, 5), (1, 1), (0, 0)):
        quorum, some = is_quorum(weight, total=total), is_some(weight, total=total)
        yield {"total": total, "weight": weight, "quorum": quorum, "some": some}


def _leaders() -> dict[str, Any]:
    weights = {provider(number): number for number in range(5)}
    order_id = keccak256(b"order")
    return {
        "weights": weights,
        "order_id": "0x" + order_id.hex(),
        "match": [leader_of_match(weights, order_id=order_id, attempt=2, round_=r) for r in range(6)],
        "snapshot": [leader_of_snapshot(weights, epoch=3, round_=r) for r in range(6)],
    }


def _bonds() -> Iterator[dict[str, Any]]:
    for max_price, pay in (
        (1, 1),
        (3_000_000, 1),
        (3_000_000, 500_001),
        (3_000_000, 3_000_000),
        (2**40 - 1, 2**40 - 1),
    ):
        bond = bid_bond_uusd(max_price)
        yield {
            "max_price_uusd": max_price,
            "pay_uusd": pay,
            "bid_bond_uusd": bond,
            "wanted_lock_uusd": wanted_lock_uusd(pay, max_price_uusd=max_price),
            "forfeit_shares_uusd": list(dataclasses.astuple(forfeit_shares(bond))),
        }


def _hashes() -> dict[str, Any]:
    """A held term of a heartbeat, and what a snapshot was computed from: in either order of its two inputs."""
    rows = (Observation(provider(1), 990_000, 980_000, 4), Observation(provider(2), 0, 1, 255))
    inputs = [Observations(7, 1_000, rows[:count]) for count in (1, 2)]
    return {
        "lease_id": "0x" + keccak256(b"lease").hex(),
        "term": 3,
        "held_term": "0x" + held_term(keccak256(b"lease"), 3).hex(),
        "observations": [to_json(each) for each in inputs],
        "inputs_hash": "0x" + inputs_hash_of(1_000, inputs).hex(),
        "inputs_hash_of_none": "0x" + inputs_hash_of(1_000, []).hex(),
    }


def _sealed_secret() -> dict[str, Any]:
    node, ephemeral = SigningKey(keccak256(b"a node key for vectors")), SigningKey(keccak256(b"an ephemeral key"))
    context = SecretContext(order_id=keccak256(b"order"), attempt=1, provider=provider(9))
    plain = b'{"HF_TOKEN":"not a secret"}'
    sealed = seal_secret(plain, to_public_key=node.public_key, context=context, ephemeral=ephemeral)
    return {
        "order_id": "0x" + context.order_id.hex(),
        "attempt": context.attempt,
        "provider": context.provider,
        "node_key": "0x" + node.secret_hex(),
        "ephemeral_key": "0x" + ephemeral.secret_hex(),
        "plain": plain.decode(),
        "sealed": "0x" + sealed.hex(),
    }


if __name__ == "__main__":
    FILE.write_text(text())

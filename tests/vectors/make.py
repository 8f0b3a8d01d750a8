"""Writes `lease_match.json`: `python -m tests.vectors.make`. Fixed seeds, so that nothing changes by itself."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

from sparewatt.market.rule import PPM, BidStatus, awards_of, book_of, leaf_of, status_of
from sparewatt.protocol.contracts.match import Bid, OrderTerms, Profile
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import contract_domain, message_digest, struct_hash
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
        case "address[]" | "bytes32[]":
            return tuple(_typical(kind[:-2], rng) for _ in range(3))
        case _:
            return rng.getrandbits(int(kind.removeprefix("uint")) // 2)


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
    message = KINDS[3](b"\1" * 32, 2, provider(9), b"\2" * 32)
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


if __name__ == "__main__":
    FILE.write_text(text())

"""Which providers an order is for, by what the registry says of them, and what would admit more. Pure.

A provider's claims are its own words: they decide who is asked, never who wins. What only validators know (uptime,
reputation, attestations) is taken as good enough here, since the rule of the match judges it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sparewatt.market.chain_records import BondRecord, MarketState, ProviderRecord, RegistryStatus
from sparewatt.market.rule import status_of
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_CLASS_ID, GPU_MODEL_ID, TIER_ID, gpu_class_id_of
from sparewatt.protocol.contracts.match import OrderTerms, Profile
from sparewatt.protocol.contracts.message_ranges import PPM
from sparewatt.protocol.contracts.reasons import BidStatus

RELAXATIONS_MAX = 5
PPM_DIGITS = 6
_MODELS = {number: name for name, number in GPU_MODEL_ID.items()}
_COUNTRIES = {number: name for name, number in COUNTRY_ID.items()}
_TIERS = {number: name for name, number in TIER_ID.items()}
_CLASSES = {number: name for name, number in GPU_CLASS_ID.items()}


def claimed_profile(provider: ProviderRecord, terms: OrderTerms) -> Profile | None:
    """As far as the registry knows it; None without claims."""
    claims = provider.claims
    if claims is None:
        return None
    model = _MODELS.get(claims.gpu_model)
    return Profile(
        provider=provider.provider,
        epoch=0,
        country=claims.country,
        zone=claims.zone,
        tier=claims.tier,
        gpu_model=claims.gpu_model,
        gpu_class=gpu_class_id_of(model) if model is not None else 0,
        vram_gb=claims.vram_gb,
        gpu_units=claims.gpu_units,
        compliance=terms.compliance,
        uptime_ppm=PPM,
        reputation_ppm=PPM,
    )


def claimed_status(terms: OrderTerms, provider: ProviderRecord) -> BidStatus:
    """The first filter of the order that the provider's claims do not pass."""
    profile = claimed_profile(provider, terms)
    return BidStatus.GPU_MODEL if profile is None else status_of(terms, profile, price_uusd=0)


def asked_providers(state: MarketState, order_id: str) -> dict[str, ProviderRecord]:
    """By node key: the active providers that an open order is for, and whose key counts for it.

    Those whose free bond is below an hour of the highest price could not bid, and do not get to read what is ordered:
    to be asked for everything costs a bond, not a registration.
    """
    fitting, needed = _fitting_providers(state, order_id), state.orders[order_id].terms.max_price_uusd
    return {node_key: each for node_key, each in fitting.items() if _free_bond(state, each) >= needed}


def count_bondless(state: MarketState, order_id: str) -> int:
    """How many fit an open order and are not asked for want of a bond."""
    return len(_fitting_providers(state, order_id)) - len(asked_providers(state, order_id))


def _free_bond(state: MarketState, provider: ProviderRecord) -> int:
    return state.bonds.get(provider.provider, BondRecord()).free_uusd


def _fitting_providers(state: MarketState, order_id: str) -> dict[str, ProviderRecord]:
    order = state.orders[order_id]
    found = dict[str, ProviderRecord]()
    for provider in state.providers.values():
        node_key = provider.node_key_at(order.opened_at[order.attempt])
        is_asked = provider.status is RegistryStatus.ACTIVE and provider.provider not in order.failed
        if node_key is not None and is_asked and claimed_status(order.terms, provider) is BidStatus.ELIGIBLE:
            found[node_key] = provider
    return found


def filter_counts(profiles: Iterable[Profile], terms: OrderTerms) -> Counter[str]:
    """How many providers each filter keeps out, by the name of its code."""
    statuses = (status_of(terms, profile, price_uusd=0) for profile in profiles)
    return Counter(status.name for status in statuses if status is not BidStatus.ELIGIBLE)


@dataclass(frozen=True, slots=True)
class FilterChange:
    """One field changed that admits providers."""

    field: str
    value: str
    providers: int


@dataclass(frozen=True, slots=True)
class _Loosening:
    field: str
    replaced: dict[str, Any]
    value: Callable[[Profile], str]


_LOOSENINGS: dict[BidStatus, _Loosening] = {
    BidStatus.COUNTRY: _Loosening(
        "region", {"countries": 0}, lambda each: _COUNTRIES.get(each.country, str(each.country))
    ),
    BidStatus.TIER: _Loosening("tier", {"tiers": 0}, lambda each: _TIERS.get(each.tier, str(each.tier))),
    BidStatus.GPU_MODEL: _Loosening(
        "gpu", {"gpu_models": 0}, lambda each: _MODELS.get(each.gpu_model, str(each.gpu_model))
    ),
    BidStatus.GPU_CLASS: _Loosening(
        "gpu_class", {"min_gpu_class": 0}, lambda each: _CLASSES.get(each.gpu_class, "any")
    ),
    BidStatus.VRAM: _Loosening("vram_gb", {"min_vram_gb": 0}, lambda each: str(each.vram_gb)),
    BidStatus.GPU_UNITS: _Loosening("gpu_count", {"gpu_units": 0}, lambda each: str(each.gpu_units)),
    BidStatus.COMPLIANCE: _Loosening("compliance", {"compliance": 0}, lambda _: "any"),
    BidStatus.UPTIME: _Loosening("uptime", {"min_uptime_ppm": 0}, lambda each: _share(each.uptime_ppm)),
    BidStatus.REPUTATION: _Loosening("reputation", {"min_reputation_ppm": 0}, lambda each: _share(each.reputation_ppm)),
    BidStatus.NOT_IN_ONLY: _Loosening("only", {"only": ()}, lambda each: each.provider),
    BidStatus.IGNORED: _Loosening("ignore", {"ignore": ()}, lambda each: f"without {each.provider}"),
}


def nearest_relaxations(profiles: Iterable[Profile], terms: OrderTerms) -> list[FilterChange]:
    """Changes of one field that admit at least one provider, those that admit most first."""
    admitted = Counter[tuple[str, str]]()
    for profile in profiles:
        loosening = _LOOSENINGS.get(status_of(terms, profile, price_uusd=0))
        if loosening is None:
            continue
        looser = dataclasses.replace(terms, **loosening.replaced)
        if status_of(looser, profile, price_uusd=0) is BidStatus.ELIGIBLE:
            admitted[loosening.field, loosening.value(profile)] += 1
    ranked = sorted(admitted.items(), key=lambda each: (-each[1], each[0]))
    return [FilterChange(field, value, count) for (field, value), count in ranked[:RELAXATIONS_MAX]]


def _share(ppm: int) -> str:
    return f"{ppm / PPM:.{PPM_DIGITS}f}".rstrip("0").rstrip(".")

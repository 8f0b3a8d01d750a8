"""Orders, offers and files of other networks for tests. The files are written after the formats' documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparewatt.leasing.orders.order_fields import LeaseOrder, read_order
from sparewatt.leasing.orders.provider_checks import OfferingProvider
from sparewatt.market.chain_records import RegisteredClaims
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_MODEL_ID, TIER_ID
from sparewatt.protocol.link.lease_offer import LeaseOffer, LeasePrice

SDL = """
version: "2.0"
services:
  web:
    image: docker.io/me/model:1
    command: [sh, -c]
    args: ["serve --port 8000"]
    env:
      - MODEL=small
    expose:
      - port: 8000
        as: 80
        to:
          - global: true
profiles:
  compute:
    web:
      resources:
        cpu: {units: 500m}
        memory: {size: 2Gi}
        storage:
          - size: 512Mi
          - size: 1Gi
        gpu:
          units: 2
          attributes:
            vendor:
              nvidia:
                - model: a100
                  ram: 80Gi
                - model: h100
  placement:
    dcloud:
      attributes: {region: us-west, host: akash}
      signedBy: {anyOf: [akash1auditor]}
      pricing:
        web: {denom: uakt, amount: 1000}
deployment:
  web:
    dcloud: {profile: web, count: 3}
"""
ICL = """
version: "1.0"
services:
  gpu-test:
    image: ghcr.io/me/notebook:2
    pull_policy: Always
    expose:
      - port: 8888
        as: 8888
        to:
          - global: true
    env:
      - TEST=test
profiles:
  name: hello-world
  mode: provider
  duration: 2min
  tier: [community]
  compute:
    gpu-test:
      resources:
        cpu: {units: 1}
        memory: {size: 20Gi}
        storage: {size: 100Gi}
        gpu:
          units: 1
          attributes:
            vendor:
              nvidia:
                - model: rtx4090
  placement:
    westcoast:
      attributes: {region: us-central}
      pricing:
        gpu-test: {token: CST, amount: 5}
deployment:
  gpu-test:
    westcoast: {profile: gpu-test, count: 1}
"""
OFFER = LeaseOffer(
    runtime=True,
    prices=(LeasePrice(1, 400_000),),
    cpu_hourly_uusd=50_000,
    longest_s=86_400,
    gpus=1,
    cpu_milli=8_000,
    memory_mib=32_000,
    disk_mib=100_000,
    egress=1,
    reclaim_s=3_600,
)
CLAIMS = RegisteredClaims(
    country=COUNTRY_ID["DE"],
    zone=1,
    tier=TIER_ID["community"],
    gpu_model=GPU_MODEL_ID["rtx-4090"],
    vram_gb=25,
    gpu_units=1,
    price_hint_uusd=300_000,
    metadata_hash="0x" + "00" * 32,
)


def order(**fields: Any) -> LeaseOrder:
    return read_order({"image": "me/train:1"} | fields)


def address(number: int) -> str:
    return f"0x{number:040x}"


def provider(number: int = 1, *, offer: dict[str, Any] | None = None, **claims: Any) -> OfferingProvider:
    """Connected, with a 4090 at $0.40 an hour and $10 of bond."""
    offered = LeaseOffer(**({name: getattr(OFFER, name) for name in OFFER.__struct_fields__} | (offer or {})))
    return OfferingProvider(
        provider=address(number),
        claims=replace(CLAIMS, **claims),
        free_bond_uusd=10_000_000,
        node_name=f"node-{number}",
        offer=offered,
    )


def priced(number: int, hourly_uusd: int) -> OfferingProvider:
    return provider(number, offer={"prices": (LeasePrice(1, hourly_uusd),)})

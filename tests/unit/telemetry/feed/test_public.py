"""What strangers see: regions and states, and nothing that leads to a name, an address, a size or a cost."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import KeyId, MatchId
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.node_row import NodeState
from sparewatt.policy.regions import COUNTRIES, GROUPS
from sparewatt.telemetry.feed.places import REGIONS, public_region, region_of, spot_of
from sparewatt.telemetry.feed.public import PublicNode, feed_match, feed_node, handle_of, size_of, vram_gb_of
from tests.unit.gateway.small_gateway import make_services, running
from tests.unit.inference.nodes import GIB, a_job, a_model, a_row, a_table, node_id, situation, some_specs

SECRET = b"s" * 32


def test_every_place_on_the_map_is_one_of_the_vocabulary_and_every_group_is_on_it() -> None:
    assert set(GROUPS) <= set(REGIONS) <= COUNTRIES | set(GROUPS)


@given(number=st.integers(0, 10**9), region=st.sampled_from(sorted(REGIONS)))
def test_a_node_is_drawn_within_its_region_and_always_at_the_same_spot(number: int, region: str) -> None:
    spot = spot_of(node_id(number), region, secret=SECRET)
    assert spot is not None
    assert spot == spot_of(node_id(number), region, secret=SECRET)
    lon, lat = spot
    centre = REGIONS[region]
    away_lat = lat - centre.lat
    away_lon = ((lon - centre.lon + 180) % 360 - 180) * math.cos(math.radians(lat))
    assert math.hypot(away_lat, away_lon) * 111 <= centre.radius_km + 5
    assert -180 <= lon <= 180


def test_two_nodes_of_a_region_stand_apart() -> None:
    assert len({spot_of(node_id(number), "DE", secret=SECRET) for number in range(50)}) > 45


def test_a_spot_cannot_be_derived_from_an_address_without_the_secret() -> None:
    spots = {spot_of(node_id(1), "DE", secret=bytes([number]) * 32) for number in range(50)}
    assert len(spots) > 45
    shown = [feed_node(a_row(1), number=0, secret=secret, state=NodeState.ONLINE) for secret in (SECRET, b"t" * 32)]
    assert (shown[0].longitude, shown[0].latitude) != (shown[1].longitude, shown[1].latitude)


@pytest.mark.parametrize(("said", "is_known"), [("us-east", True), ("DE", True), ("de-berlin", True), ("local", False)])
def test_a_region_that_is_no_place_has_no_spot(said: str, is_known: bool) -> None:  # noqa: FBT001
    assert (region_of(said) is not None) is is_known
    assert (spot_of(node_id(1), said, secret=SECRET) is not None) is is_known


def test_no_more_of_a_place_is_public_than_its_country_or_a_known_part() -> None:
    said = ("eu-west", "US-East", "DE", "de-berlin", "Main Street 5, Springfield", "local", "eu-west-2")
    assert [public_region(one) for one in said] == ["eu-west", "us-east", "DE", "DE", "unsaid", "unsaid", "unsaid"]


def test_a_handle_is_the_same_in_one_network_and_another_in_another() -> None:
    assert handle_of(node_id(1), secret=SECRET) == handle_of(node_id(1), secret=SECRET)
    assert handle_of(node_id(1), secret=SECRET) != handle_of(node_id(1), secret=b"t" * 32)
    assert handle_of(node_id(1), secret=SECRET) != handle_of(node_id(2), secret=SECRET)


def test_a_stranger_sees_neither_name_nor_address_nor_price_of_a_node() -> None:
    row = a_row(7, some_specs(name="grandma's attic"))
    shown = msgspec.json.encode(feed_node(row, number=3, secret=SECRET, state=NodeState.ONLINE)).decode()
    for secret in ("attic", node_id(7), node_id(7)[2:], "300000000", "0.3"):
        assert secret not in shown


def test_the_exact_memory_of_a_machine_without_a_gpu_is_not_shown() -> None:
    assert vram_gb_of(a_row(specs=some_specs(gpu="cpu", gpu_count=0, vram_bytes=23_456_789_012))) == 16
    assert vram_gb_of(a_row(specs=some_specs(vram_bytes=24 * GIB))) == 26


def test_a_stranger_sees_of_a_match_neither_key_nor_account_nor_exact_size_nor_cost() -> None:
    table = a_table(3)
    job = a_job(prompt_tokens=1237, output_tokens=311)
    decision = match(job, table, situation(), ranking=BALANCED, seed=1)
    record = MatchRecord(job.id, KeyId("key_secret"), 1_700_000_000.0, decision)
    record.attempts.append(AttemptRecord(node_id(1), started_ms=1.0, first_token_ms=123.456, tokens=311))
    shown = feed_match(record, [PublicNode(0, "eu-west")])
    assert shown.first_token_ms == 120
    assert shown.size == "M"
    text = msgspec.json.encode(shown).decode()
    for secret in ("key_secret", "1237", "311", "1548", "price", "usd", "cost", node_id(1)):
        assert secret not in text


def test_a_match_in_one_piece_has_no_first_token() -> None:
    decision = match(a_job(), a_table(3), situation(), ranking=BALANCED, seed=1)
    record = MatchRecord(MatchId("match_a"), KeyId("key_a"), 0.0, decision, streamed=False)
    record.attempts.append(AttemptRecord(node_id(1), started_ms=1.0, first_token_ms=123.456, tokens=311))
    assert feed_match(record, [PublicNode(0, "eu-west")]).first_token_ms is None


def test_sizes_grow_in_steps() -> None:
    assert [size_of(tokens) for tokens in (1, 64, 65, 512, 4_096, 4_097, 10**6)] == [
        "XS",
        "XS",
        "S",
        "S",
        "M",
        "L",
        "XL",
    ]


async def test_strangers_see_prices_to_three_digits_where_one_node_would_be_known_by_all() -> None:
    model = a_model(prompt_price_nano=123_456_789, completion_price_nano=20_000_000)
    services = make_services(a_table(1, some_specs(model, hourly_price_nano=1_234_567_891)))
    async with running(services) as client:
        told = await (await client.get("/v1/network")).json()
    [shown], [kind] = told["models"], told["classes"]
    assert shown["prompt_usd_per_mtok"] == {"low": "0.123", "median": "0.123", "high": "0.123"}
    assert shown["completion_usd_per_mtok"]["low"] == "0.02"
    assert kind["hourly_usd_median"] == "1.23"


def test_the_network_s_own_totals_are_rounded_like_a_match() -> None:
    services = make_services(a_table(1))
    services.counter._recent.append((services.clock.now_s(), 123.456))
    services.live._tokens.extend([(0.0, 0), (10.0, 1237)])
    totals = services.live.totals()
    assert (totals.first_token_ms, totals.tokens_per_s) == (120, 120)
    services.live._tokens.append((10.1, 43))
    assert services.live.totals().tokens_per_s == 4

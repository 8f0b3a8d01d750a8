"""The routes about money at a real gateway over a real Postgres."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from sparewatt.api.money.statements import STATEMENT_LINES_MAX
from sparewatt.core.errors import RateLimited, StartupError
from sparewatt.core.money import Nano
from sparewatt.gateway.accounting import make_money_service
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.ledger import chart
from sparewatt.store.database import Database
from sparewatt.testing.clocks import ManualClock
from tests.integration.money.gateways import Gateway, make_key, running_gateway
from tests.integration.money.samples import ANN, BEN, HIS, NODE, NOON_S, OLE, delivery, job, settle


@pytest.fixture
async def gateway(dsn: str, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Gateway]:
    async with running_gateway(dsn, tmp_path, clock) as gateway:
        yield gateway


async def work(gateway: Gateway) -> None:
    """Ann has $1 free and $2 paid; Ben earns from both, Ole from free credits."""
    await gateway.post("/v1/credits/grant", {"account": ANN, "usd": "1"}, who="operator")
    await gateway.post("/v1/credits/deposit", {"usd": "2"})
    await settle(
        gateway.services.database,
        job("1", delivery(BEN), paid=100_000),
        job("2", delivery(BEN), promo=100_000, model="=large"),
        job("3", delivery(OLE), promo=100_000, key="key_b", at=NOON_S - 86_400),
    )


# credits


async def test_credits_have_openrouters_shape_and_exact_amounts(gateway: Gateway) -> None:
    await work(gateway)
    data = (await gateway.told("/v1/credits"))["data"]
    assert (data["total_credits"], data["total_usage"]) == (3, 0.00003)
    assert (data["balance_usd"], data["balance_nano"]) == ("2.99997", 2_999_970_000)
    assert (data["promo_nano"], data["paid_nano"]) == (999_980_000, 1_999_990_000)
    assert data["promo_expires_at"] == NOON_S + 30 * 86_400


async def test_who_never_had_credits_has_none(gateway: Gateway) -> None:
    data = (await gateway.told("/v1/credits", who="ben"))["data"]
    assert (data["balance_usd"], data["total_credits"], data["promo_expires_at"]) == ("0", 0, None)


async def test_signing_up_brings_free_credits(gateway: Gateway) -> None:
    body = {"email": "zoe@example.com", "password": "correct horse battery"}
    reply = await gateway.client.post("/v1/signup", json=body)
    assert reply.status == 201, await reply.text()
    account = (await reply.json())["account"]["id"]
    data = (await gateway.told(f"/v1/credits?account={account}", who="operator"))["data"]
    assert (data["promo_usd"], data["paid_usd"]) == ("1", "0")


async def test_asking_twice_under_one_id_does_it_once(gateway: Gateway) -> None:
    for path, who, more in (
        ("/v1/credits/grant", "operator", {"account": ANN}),
        ("/v1/credits/deposit", "ann", {}),
        ("/v1/treasury/fund", "operator", {}),
    ):
        body = {"usd": "1.5", "id": "once", **more}
        first, second = await gateway.post(path, body, who=who), await gateway.post(path, body, who=who)
        assert [(r.status, (await r.json())["posted"]) for r in (first, second)] == [(201, True), (200, False)]
    data = (await gateway.told("/v1/credits"))["data"]
    assert (data["promo_usd"], data["paid_usd"]) == ("1.5", "1.5")
    assert (await gateway.told("/v1/treasury", who="ole"))["data"]["balance_usd"] == "1.5"


async def test_an_id_used_for_something_else_is_a_409_and_changes_nothing(gateway: Gateway) -> None:
    used: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        ("/v1/credits/grant", "operator", {"usd": "1", "account": ANN}, {"account": BEN}),
        ("/v1/credits/grant", "operator", {"usd": "1", "account": ANN}, {"usd": "2"}),
        ("/v1/credits/deposit", "ann", {"usd": "1"}, {"usd": "2"}),
        ("/v1/treasury/fund", "operator", {"usd": "1"}, {"usd": "2"}),
    ]
    for path, who, body, _ in used:
        await gateway.post(path, {**body, "id": "once"}, who=who)
    before = await everything(gateway.services.database)
    for path, who, body, other in used:
        reply = await gateway.post(path, {**body, **other, "id": "once"}, who=who)
        error = (await reply.json())["error"]
        assert (reply.status, error["code"], error["param"]) == (409, "id_reused", "id"), path
    assert await everything(gateway.services.database) == before


async def test_a_closed_account_is_granted_nothing(gateway: Gateway) -> None:
    assert (await gateway.post(f"/v1/accounts/{BEN}/close", {}, who="operator")).status == 200
    before = await everything(gateway.services.database)
    reply = await gateway.post("/v1/credits/grant", {"account": BEN, "usd": "1"}, who="operator")
    assert (reply.status, (await reply.json())["error"]["param"]) == (400, "account")
    assert await everything(gateway.services.database) == before


async def test_one_persons_reference_does_not_block_anothers(gateway: Gateway) -> None:
    for who in ("ann", "ben"):
        reply = await gateway.post("/v1/credits/deposit", {"nano": 5, "id": "mine"}, who=who)
        assert reply.status == 201


BAD_AMOUNTS: list[dict[str, Any]] = [
    {},
    {"usd": "-1"},
    {"usd": -1},
    {"usd": "0"},
    {"usd": "0.0000000001"},
    {"usd": "1e-10"},
    {"usd": "1000000.01"},
    {"usd": "1e40"},
    {"usd": "NaN"},
    {"usd": "Infinity"},
    {"usd": "ten"},
    {"usd": ""},
    {"usd": None},
    {"usd": True},
    {"usd": ["1"]},
    {"nano": 0},
    {"nano": -5},
    {"nano": 1.5},
    {"nano": "5"},
    {"nano": 10**15 + 1},
    {"nano": 2**64},
    {"nano": 10**40},
    {"usd": "1", "nano": 1_000_000_000},
    {"usd": "1", "currency": "EUR"},
    {"usd": "1", "currency": ""},
    {"usd": "1", "currency": 7},
    {"usd": "1", "id": ""},
    {"usd": "1", "id": "x" * 101},
    {"usd": "1", "id": "two\nlines"},
    {"usd": "1", "id": "ünïcode"},
    {"usd": "1", "typo": 1},
]


async def test_an_amount_that_makes_no_sense_is_a_400_and_changes_nothing(gateway: Gateway) -> None:
    database = gateway.services.database
    before = await everything(database)
    for path, who, more in (
        ("/v1/credits/grant", "operator", {"account": ANN}),
        ("/v1/credits/deposit", "ann", {}),
        ("/v1/treasury/fund", "operator", {}),
    ):
        for bad in BAD_AMOUNTS:
            reply = await gateway.post(path, bad | more, who=who)
            error = (await reply.json())["error"]
            assert reply.status == 400, (path, bad)
            assert len(error["message"]) > 10, (path, bad)
    assert await everything(database) == before


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/credits/grant", {"usd": "1", "account": "acc_nobody"}, 404),
        ("/v1/credits/grant", {"usd": "1"}, 400),
        ("/v1/credits/grant", {"usd": "1", "account": "acc_ann", "days": 0}, 400),
        ("/v1/credits/grant", {"usd": "1", "account": "acc_ann", "days": 1e9}, 400),
        ("/v1/credits/grant", {"usd": "1", "account": "acc_ann", "memo": "x" * 101}, 400),
        ("/v1/credits/deposit", {"usd": "1", "adapter": "cash"}, 400),
        ("/v1/credits/deposit", [], 400),
    ],
)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    gateway: Gateway, path: str, body: object, status: int
) -> None:
    before = await everything(gateway.services.database)
    reply = await gateway.post(path, body, who="operator")
    assert reply.status == status, await reply.text()
    assert await everything(gateway.services.database) == before


async def everything(database: Database) -> list[tuple[Any, ...]]:
    async with database.ledger._pool._pool.acquire() as connection:
        return [tuple(row) for row in await connection.fetch("SELECT * FROM balances ORDER BY account")]


async def test_a_network_that_is_not_for_development_takes_no_test_money(
    dsn: str, tmp_path: Path, clock: ManualClock
) -> None:
    async with running_gateway(dsn, tmp_path, clock, development=False) as gateway:
        reply = await gateway.post("/v1/credits/deposit", {"usd": "1"})
        assert reply.status == 400
        assert "takes no deposits" in (await reply.json())["error"]["message"]


@pytest.mark.parametrize(
    "settings",
    [
        {"development": True, "public_url": "https://gpu.example"},
        {"signup_credit_usd": "-1"},
        {"signup_credit_usd": "much"},
        {"treasury_daily_usd": "0.0000000001"},
    ],
)
def test_settings_that_make_no_sense_stop_the_start(settings: dict[str, Any], clock: ManualClock) -> None:
    chosen = GatewaySettings(database_url="postgresql://nowhere", **settings)
    with pytest.raises(StartupError):
        make_money_service(chosen, Database(None), clock=clock)  # type: ignore[arg-type]  # it is not asked anything


# key, usage, generation


async def test_a_key_shows_its_limit_and_what_is_left(gateway: Gateway) -> None:
    await make_key(
        gateway.services, ANN, ("inference",), secret="sk-sw-limited", budget_nano=1_000_000, budget_period="week"
    )
    key_id = gateway.services.keys.authenticate("Bearer sk-sw-limited", unix_s=NOON_S).id
    await settle(
        gateway.services.database,
        job("1", delivery(), paid=100_000, key=key_id),
        job("2", delivery(), paid=100_000, key=key_id, at=NOON_S - 2 * 86_400),
        job("3", delivery(), paid=100_000, key=key_id, at=NOON_S - 8 * 86_400),
    )
    data = (await gateway.told("/v1/key", who="limited"))["data"]
    assert [data[f"usage{of}"] for of in ("", "_daily", "_weekly", "_monthly")] == [3e-5, 1e-5, 2e-5, 3e-5]
    assert (data["limit"], data["limit_remaining"], data["limit_reset"]) == (0.001, 0.00098, "weekly")
    assert data["is_free_tier"]


async def test_a_key_without_a_limit_says_so(gateway: Gateway) -> None:
    data = (await gateway.told("/v1/key"))["data"]
    assert (data["limit"], data["limit_remaining"], data["limit_reset"], data["usage"]) == (None, None, None, 0)
    assert "sk-sw-ann" not in str(data).replace(data["label"], "")


@pytest.mark.parametrize(("by", "names"), [("day", 2), ("model", 2), ("key", 2), ("job", 3)])
async def test_json_and_csv_say_the_same(gateway: Gateway, by: str, names: int) -> None:
    await work(gateway)
    lines = (await gateway.told(f"/v1/usage?by={by}"))["data"]
    reply = await gateway.get(f"/v1/usage?by={by}&format=csv")
    assert reply.content_type == "text/csv"
    assert "attachment" in reply.headers["content-disposition"]
    assert_same(lines, await reply.text())
    assert len(lines) == names
    assert sum(line["cost_nano"] for line in lines) == 30_000


def assert_same(lines: list[dict[str, Any]], text: str) -> None:
    found = list(csv.DictReader(io.StringIO(text)))
    assert [{name: _as_text(value) for name, value in line.items()} for line in lines] == found


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith("=") else str(value)


async def test_a_name_that_a_spreadsheet_would_run_is_quoted_in_csv(gateway: Gateway) -> None:
    await work(gateway)
    text = await (await gateway.get("/v1/usage?by=model&format=csv")).text()
    assert "\r\n'=large," in text
    assert (await gateway.told("/v1/usage?by=model"))["data"][0]["name"] == "=large"


@pytest.mark.parametrize("path", ["/v1/usage?by=day", "/v1/usage?by=job", "/v1/earnings?by=job", "/v1/earnings?by=day"])
async def test_an_empty_csv_still_names_its_columns(gateway: Gateway, path: str) -> None:
    text = await (await gateway.get(f"{path}&format=csv", who="ben")).text()
    await work(gateway)
    full = await (await gateway.get(f"{path}&format=csv", who="operator")).text()
    assert text.count("\r\n") == 1
    assert full.splitlines()[0] == text.strip()


async def test_names_of_any_language_can_be_paged_through(gateway: Gateway) -> None:
    await settle(
        gateway.services.database,
        *(job(str(i), delivery(), paid=100_000, model=model) for i, model in enumerate(("ä/ö", "模型", "a b"))),
    )
    first = await gateway.get("/v1/usage?by=model&limit=2")
    assert unquote(first.headers["x-sparewatt-next"]) == (await first.json())["next"] == "ä/ö"
    rest = await gateway.told(f"/v1/usage?by=model&limit=2&after={first.headers['x-sparewatt-next']}")
    assert [line["name"] for line in rest["data"]] == ["模型"]


async def test_statements_come_in_pages(gateway: Gateway) -> None:
    await work(gateway)
    for path, who in (("/v1/usage?by=job", "ann"), ("/v1/usage?by=day", "ann"), ("/v1/earnings?by=job", "ben")):
        whole = (await gateway.told(path, who=who))["data"]
        paged: list[Any] = []
        after = ""
        while True:
            reply = await gateway.get(f"{path}&limit=1&after={after}", who=who)
            told = await reply.json()
            paged += told["data"]
            assert unquote(reply.headers.get("x-sparewatt-next", "")) == (told["next"] or "")
            if told["next"] is None:
                break
            after = told["next"]
        assert paged == whole
        assert len(whole) >= 2


@pytest.mark.parametrize(
    "query",
    [
        "by=colour",
        "limit=0",
        f"limit={STATEMENT_LINES_MAX + 1}",
        "limit=many",
        "from=yesterday",
        "from=2026-13-01",
        "to=99999999999999",
        "from=2023-11-15&to=2023-11-14",
        "from=2020-01-01",
        "format=pdf",
        "by=job&after=elsewhere",
        "after=%00",
        f"after={'x' * 301}",
        "key=%27%20OR%201",
    ],
)
async def test_a_statement_that_cannot_be_made_is_a_400(gateway: Gateway, query: str) -> None:
    reply = await gateway.get(f"/v1/usage?{query}")
    assert reply.status == 400, await reply.text()


async def test_days_include_the_last_one(gateway: Gateway) -> None:
    await work(gateway)
    told = await gateway.told("/v1/usage?by=day&from=2023-11-14&to=2023-11-14")
    assert [line["name"] for line in told["data"]] == ["2023-11-14"]
    told = await gateway.told("/v1/usage?by=day&from=2023-11-14&to=2023-11-15")
    assert [line["name"] for line in told["data"]] == ["2023-11-14", "2023-11-15"]


async def test_a_generation_has_openrouters_shape_and_its_attempts(gateway: Gateway) -> None:
    await work(gateway)
    data = (await gateway.told("/v1/generation?id=match_1"))["data"]
    assert (data["id"], data["model"], data["streamed"], data["cancelled"]) == ("match_1", "small", True, False)
    assert (data["tokens_prompt"], data["tokens_completion"]) == (100, 200)
    assert (data["total_cost"], data["cost_usd"], data["cost_nano"]) == (1e-5, "0.00001", 10_000)
    assert (data["latency"], data["generation_time"], data["provider_name"]) == (12.5, 2_000, NODE)
    (attempt,) = data["attempts"]
    assert (attempt["net_nano"], attempt["fee_nano"], attempt["completion_usd_per_mtok"]) == (9_500, 500, "0.04")


@pytest.mark.parametrize(("wanted", "status"), [("match_1", 404), ("match_none", 404), ("%00", 404), ("", 400)])
async def test_somebody_elses_generation_is_not_there(gateway: Gateway, wanted: str, status: int) -> None:
    await work(gateway)
    assert (await gateway.get(f"/v1/generation?id={wanted}", who="ben")).status == status


# earnings and payouts


@pytest.mark.parametrize("by", ["job", "day", "model", "node"])
async def test_earnings_say_what_is_net_fee_and_promo(gateway: Gateway, by: str) -> None:
    await work(gateway)
    lines = (await gateway.told(f"/v1/earnings?by={by}", who="ben"))["data"]
    sums = [sum(line[f"{name}_nano"] for line in lines) for name in ("net", "net_promo", "fee")]
    assert sums == [9_500, 9_500, 1_000]
    assert_same(lines, await (await gateway.get(f"/v1/earnings?by={by}&format=csv", who="ben")).text())


async def test_earnings_can_be_those_of_one_node(gateway: Gateway) -> None:
    await work(gateway)
    assert len((await gateway.told(f"/v1/earnings?node={NODE}", who="ben"))["data"]) == 2
    assert (await gateway.told(f"/v1/earnings?node=0x{'99' * 20}", who="ben"))["data"] == []
    assert (await gateway.get("/v1/earnings?node=berlin", who="ben")).status == 404


async def test_a_summary_says_where_the_money_is_and_how_busy_nodes_were(gateway: Gateway, clock: ManualClock) -> None:
    await work(gateway)
    clock.advance(8.0)
    data = (await gateway.told("/v1/earnings/summary", who="ben"))["data"]
    assert (data["pending_nano"], data["promo_nano"], data["fee_bps"]) == (9_500, 9_500, 500)
    (node,) = data["nodes"]
    assert (node["busy_s"], node["work_s"]) == (2.0, 4.0)
    elsewhere = await gateway.told(f"/v1/earnings/summary?node=0x{'99' * 20}", who="ben")
    assert elsewhere["data"]["nodes"] == []
    assert node["utilisation"] == pytest.approx(0.25)


async def test_earnings_move_from_pending_to_a_batch_that_anybody_can_check(gateway: Gateway) -> None:
    await work(gateway)
    made = await gateway.post("/v1/payouts/batches", {}, who="operator")
    assert made.status == 201
    assert (await (await gateway.post("/v1/payouts/batches", {}, who="operator")).json())["made"] is False
    data = (await gateway.told("/v1/earnings/summary", who="ben"))["data"]
    assert (data["pending_nano"], data["batched_nano"], data["settled_nano"]) == (500, 9_000, 0)
    (payment,) = (await gateway.told("/v1/payouts", who="ben"))["data"]
    assert (payment["amount_usd"], payment["state"], payment["address"]) == ("0.000009", "ready", HIS)
    batch = await gateway.told("/v1/payouts/batches/1", who=None)
    assert HIS in [leaf["address"] for leaf in batch["data"]]
    assert all("account_id" not in leaf for leaf in batch["data"])
    proof = await gateway.told("/v1/payouts/batches/1/proof", who="ben")
    assert (proof["leaf"]["address"], proof["root"]) == (HIS, batch["root"])
    assert (await gateway.told("/v1/payouts/batches", who=None))["data"][0]["epoch"] == 1


@pytest.mark.parametrize("epoch", ["0", "2", "-1", "x", "9" * 30])
async def test_a_batch_that_is_not_there_is_a_404(gateway: Gateway, epoch: str) -> None:
    assert (await gateway.get(f"/v1/payouts/batches/{epoch}", who=None)).status == 404


async def test_what_is_public_is_not_without_end(gateway: Gateway) -> None:
    assert (await gateway.get("/v1/payouts/batches", who=None)).status == 200
    with pytest.raises(RateLimited):
        knock_often(gateway)
    reply = await gateway.get("/v1/payouts/batches", who=None)
    assert reply.status == 429
    assert reply.headers["retry-after"]


def knock_often(gateway: Gateway) -> None:
    for _ in range(2_000):
        gateway.services.public_limits.published.admit(address="127.0.0.1")


# books


async def test_an_audit_finds_a_wrong_balance_and_a_rebuild_mends_it(gateway: Gateway) -> None:
    await work(gateway)
    assert (await gateway.told("/v1/ledger/audit", who="operator"))["in_order"]
    async with gateway.services.database.ledger._pool._pool.acquire() as connection:
        await connection.execute("UPDATE balances SET nano = nano + 1 WHERE account = $1", chart.credits_of(ANN))
    found = await gateway.told("/v1/ledger/audit", who="operator")
    assert (found["in_order"], found["wrong_balances"]) == (False, 1)
    mended = await (await gateway.post("/v1/ledger/rebuild", {}, who="operator")).json()
    assert (mended["in_order"], mended["balances_corrected"]) == (True, 1)


async def test_the_chores_expire_redeem_and_settle(gateway: Gateway, clock: ManualClock) -> None:
    await work(gateway)
    await gateway.post("/v1/treasury/fund", {"usd": "1"}, who="operator")
    clock.advance(31 * 86_400)
    await gateway.services.money.run_chores()
    data = (await gateway.told("/v1/credits"))["data"]
    assert (data["promo_nano"], data["expired_nano"]) == (0, 999_980_000)
    summary = (await gateway.told("/v1/earnings/summary", who="ben"))["data"]
    assert (summary["pending_nano"], summary["batched_nano"], summary["promo_nano"]) == (0, 19_000, 0)
    assert (await gateway.services.database.ledger.audit()).is_clean
    assert await gateway.services.money.credits.expire() == Nano(0)


# who may


EVERYBODY = {None, "ann", "ben", "ole", "operator"}
MAY: dict[tuple[str, str], set[str | None]] = {
    ("GET", "/v1/credits"): {"ann", "ben", "operator"},
    ("GET", "/v1/credits?account=acc_ben"): {"ben", "operator"},
    ("POST", "/v1/credits/grant"): {"operator"},
    ("POST", "/v1/credits/deposit"): {"ann", "ben", "operator"},
    ("GET", "/v1/key"): {"ann", "ben", "ole", "operator"},
    ("GET", "/v1/usage"): {"ann", "ben", "operator"},
    ("GET", "/v1/usage?account=acc_ben"): {"ben", "operator"},
    ("GET", "/v1/generation?id=match_1"): {"ann", "operator"},
    ("GET", "/v1/earnings"): {"ben", "ole", "operator"},
    ("GET", "/v1/earnings?account=acc_ben"): {"ben", "operator"},
    ("GET", "/v1/earnings/summary"): {"ben", "ole", "operator"},
    ("GET", "/v1/earnings/summary?account=acc_ben"): {"ben", "operator"},
    ("GET", "/v1/payouts"): {"ben", "ole", "operator"},
    ("GET", "/v1/payouts?account=acc_ben"): {"ben", "operator"},
    ("GET", "/v1/payouts/batches"): EVERYBODY,
    ("POST", "/v1/payouts/batches"): {"operator"},
    ("GET", "/v1/payouts/batches/1"): EVERYBODY,
    ("GET", f"/v1/payouts/batches/1/proof?address={HIS}"): {"ben", "ole", "operator"},
    ("GET", "/v1/treasury"): {"ben", "ole", "operator"},
    ("POST", "/v1/treasury/fund"): {"operator"},
    ("GET", "/v1/ledger/audit"): {"operator"},
    ("POST", "/v1/ledger/rebuild"): {"operator"},
}


async def test_who_may_ask_what(gateway: Gateway) -> None:
    await work(gateway)
    await gateway.post("/v1/payouts/batches", {}, who="operator")
    for (method, path), allowed in MAY.items():
        for who in EVERYBODY:
            sent = gateway.get(path, who=who) if method == "GET" else gateway.post(path, _body(path), who=who)
            reply = await sent
            assert (reply.status < 300) == (who in allowed), (method, path, who, await reply.text())
            if who is None and None not in allowed:
                assert reply.status == 401, (method, path)


def _body(path: str) -> dict[str, Any]:
    return {"usd": "1"} | ({"account": ANN} if path.endswith("grant") else {}) if "batches" not in path else {}

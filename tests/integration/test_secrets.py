"""Nothing secret is left behind: markers planted as password, key and token appear in no log, error body or dump."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask
from tests.integration.mailbox import Mailbox, mailbox
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import browser_of, send

HIDDEN_COLUMNS = {
    ("accounts", "chain_key"),
    ("former_chain_keys", "chain_key"),
    ("grant_counts", "who"),
    ("providers", "sealed_key"),
    ("responses", "input"),
    ("responses", "output"),
    ("shelf_documents", "sealed"),
    ("transient_responses", "input"),
    ("transient_responses", "output"),
} | {(table, "hash") for table in ("api_keys", "join_tokens", "sessions", "password_resets", "invites", "login_links")}
"""Hashed or sealed: 32 bytes of SHA-256, or AES-GCM."""

OPEN_COLUMNS = {
    ("network_secret", "fingerprint"),
    ("receipts", "signature"),
    ("receipts", "proof"),
    ("payout_batches", "root"),
    ("reward_eras", "inputs_hash"),
    ("chain_index", "genesis_hash"),
    ("chain_index", "block_hash"),
    ("chain_blocks", "hash"),
    ("chain_events", "block_hash"),
    ("chain_events", "tx_hash"),
    ("chain_outbox", "data"),
    ("chain_outbox", "block_hash"),
    ("chain_outbox", "tx_hash"),
    ("chain_signed", "tx_hash"),
    ("chain_signed", "raw"),
}
"""Bytes that anybody may see: they prove something and give nothing away."""


@dataclass
class Trail:
    """What was secret, and everything that the network said in public."""

    network: Network
    box: Mailbox
    secrets: dict[str, str] = field(default_factory=dict)
    errors: list[bytes] = field(default_factory=list)

    def say(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Reply:
        reply = send(self.network, method, path, body, headers)
        if reply.status >= 400:
            self.errors.append(reply.body + repr(reply.headers).encode())
        return reply


async def dump(data: Path) -> str:
    """Every row of every table, as text; bytes come out as hex."""
    connection = await asyncpg.connect(EmbeddedPostgres(data / "postgres").dsn)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        lines = []
        for (table,) in tables:
            rows = await connection.fetch(f"SELECT t::text FROM {table} t")  # noqa: S608 (names from the catalog)
            lines += [f"{table} {row[0]}" for row in rows]
        return "\n".join(lines)
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trail]:
    with mailbox() as box:
        env = {
            "SPAREWATT_GATEWAY_SMTP_URL": f"smtp://127.0.0.1:{box.port}",
            "SPAREWATT_GATEWAY_SMTP_FROM": "net@example.org",
            "SPAREWATT_GATEWAY_LOG_LEVEL": "debug",
        }
        folder = tmp_path_factory.mktemp("secrets")
        with start_network(folder, "--engine=deterministic", "--nodes=0", env=env) as network:
            trail = Trail(network, box)
            live_a_life(trail)
            yield trail


def live_a_life(trail: Trail) -> None:
    """Sign up, log in, forget the password, get another, make and lose keys; and do each of it wrongly as well."""
    marked = f"marker-{secrets.token_hex(8)}"
    password, second, third = (f"{marked}-password-{n}" for n in range(3))
    email = "ann@example.org"
    entered = trail.say("POST", "/v1/signup", {"email": email, "password": password})
    browser = browser_of(entered)
    trail.secrets |= {"password": password, "second": second, "third": third, "csrf": browser.csrf}
    trail.secrets["cookie"] = browser.cookie.partition("=")[2]
    for path in ("/v1/signup", "/v1/login"):
        trail.say("POST", path, {"email": email, "password": third})
        trail.say("POST", path, {"email": email, "password": [third]})
        trail.say("POST", path, {"email": third, "password": third})
        trail.say("POST", path, {"email": email, "password": third, "more": third})
    change = {"current_password": password, "password": second}
    assert trail.say("POST", "/v1/password", change, browser.headers()).status == 200
    assert trail.say("POST", "/v1/password", change, browser.headers()).status == 401
    scopes = ["admin", "inference", "node"]
    made = trail.say("POST", "/v1/keys", {"name": "app", "scopes": scopes}, browser.headers()).json()
    bearer = {"authorization": f"Bearer {made['key']}"}
    trail.secrets["key"] = made["key"]
    trail.secrets["join token"] = trail.say("POST", "/v1/join-tokens", {}, bearer).json()["token"]
    trail.say("DELETE", f"/v1/keys/{made['id']}", None, bearer)
    trail.say("GET", "/v1/me", None, bearer)
    trail.say("GET", "/v1/me", None, {"authorization": made["key"]})
    trail.say("GET", f"/v1/keys?{made['key']}", None, bearer)
    operator = {"authorization": f"Bearer {trail.network.api_key}"}
    trail.secrets["start-up key"] = trail.network.api_key
    trail.secrets["invite"] = trail.say("POST", "/v1/invites", {}, operator).json()["token"]
    token = trail.say("POST", f"/v1/accounts/{email}/reset-password", {}, operator).json()["token"]
    trail.secrets["reset token"] = token
    trail.say("POST", "/v1/password/reset", {"token": token, "password": "short"})
    trail.say("POST", "/v1/password/reset", {"token": token, "password": third})
    trail.say("POST", "/v1/password/reset", {"token": token, "password": third})
    assert trail.say("POST", "/v1/password/reset-request", {"email": email}).status == 202
    assert trail.say("POST", "/v1/password/reset-request", {"email": "nobody@example.org"}).status == 202
    wait_until(lambda: bool(trail.box.mails), "the mail has come")
    trail.secrets["mailed token"] = re.findall(r"reset-sw-[0-9a-f]+", trail.box.mails[0])[0]


def test_a_mail_goes_to_whoever_is_known_and_its_token_works(trail: Trail) -> None:
    (mail,) = trail.box.mails
    assert "To: ann@example.org" in mail
    assert trail.network.root_url in mail
    body = {"token": trail.secrets["mailed token"], "password": trail.secrets["second"]}
    assert trail.say("POST", "/v1/password/reset", body).status == 200


def test_no_log_holds_a_secret(trail: Trail) -> None:
    logs = {path.name: path.read_text(errors="replace") for path in trail.network.log_dir.glob("*")}
    assert logs
    assert [(what, name) for what, secret in trail.secrets.items() for name in logs if secret in logs[name]] == []


def test_no_error_repeats_a_secret(trail: Trail) -> None:
    assert len(trail.errors) >= 12
    said = b"\n".join(trail.errors).decode()
    assert [what for what, secret in trail.secrets.items() if secret in said] == []


def test_no_dump_holds_a_secret_in_any_form(trail: Trail) -> None:
    dumped = asyncio.run(dump(trail.network.data))
    assert "ann@example.org" in dumped
    assert "$argon2id$" in dumped
    for what, secret in trail.secrets.items():
        assert secret not in dumped, what
        assert secret.encode().hex() not in dumped, what
        if re.fullmatch(r"[0-9a-f]{64}", secret):
            assert secret not in dumped.replace("\\x", ""), what


def test_no_dump_holds_the_network_s_own_secret_or_an_open_chain_key(trail: Trail) -> None:
    dumped = asyncio.run(dump(trail.network.data))
    secret = (trail.network.data / "gateway" / "secret").read_text().strip()
    assert len(secret) == 64
    assert secret not in dumped
    sealed = re.findall(r"\\x01[0-9a-f]{120}", dumped.replace("\\\\", "\\"))
    assert len(sealed) == len(ask(trail.network, "GET", "/v1/accounts").json()["data"]) == 3


def test_bytes_are_kept_only_where_they_are_hashed_or_sealed(trail: Trail) -> None:
    """A new column of bytes has to be thought about here."""

    async def columns() -> set[tuple[str, str]]:
        connection = await asyncpg.connect(EmbeddedPostgres(trail.network.data / "postgres").dsn)
        rows = await connection.fetch(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t "
            "USING (table_schema, table_name) "
            "WHERE table_schema = 'public' AND data_type = 'bytea' AND table_type = 'BASE TABLE' "
            "AND NOT EXISTS (SELECT 1 FROM pg_class WHERE relname = c.table_name AND relispartition)"
        )
        await connection.close()
        return {(row[0], row[1]) for row in rows}

    assert asyncio.run(columns()) - OPEN_COLUMNS == HIDDEN_COLUMNS

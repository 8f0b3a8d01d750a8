"""What a validator's process decides before it starts: its keys, its stake, and what its operator is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable, InvalidAmount, StartupError
from sparewatt.core.rng import seeded
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ChainIdentity
from sparewatt.market.chain_records import ValidatorRecord
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.validator.deployment import MarketDeployment, NetworkTimes
from sparewatt.validator.eigen_api import Health
from sparewatt.validator.process import ChainAccess, Validator, _open_vote_key, operator_key, stake_of
from sparewatt.validator.rpc_meter import MeteredRpcClient
from sparewatt.validator.settings import ValidatorSettings
from sparewatt.validator.signed_file import FileBinding, SignedFile
from tests.unit.market.match.match_scene import VOTE_KEYS
from tests.unit.validator.host_scene import a_state

ADDRESSES = {name: f"0x{index:040x}" for index, name in enumerate(shipped_abis(), 1)}
OPERATOR = SigningKey(b"\5" * 32)


def a_deployment(*, chain_id: int = 31337, genesis: bytes = b"\1" * 32) -> MarketDeployment:
    domain = contract_domain(chain_id=chain_id, contract=ADDRESSES["task_manager"])
    return MarketDeployment(ChainIdentity(chain_id, genesis), Contracts(shipped_abis(), ADDRESSES), 1, domain)


@pytest.fixture
def settings(tmp_path: Path) -> ValidatorSettings:
    return ValidatorSettings(tmp_path / "data", "http://127.0.0.1:1", tmp_path / "contracts.json", port=0)


class SilentTransport:
    async def post(self, body: bytes) -> bytes:
        raise ChainUnavailable(f"nobody hears {len(body)} bytes")


@asynccontextmanager
async def a_validator(settings: ValidatorSettings) -> AsyncIterator[Validator]:
    clock = SystemClock()
    client = EvmClient(MeteredRpcClient(SilentTransport(), clock, tries=1))
    chain = ChainAccess(client, client, a_deployment(), NetworkTimes(60, 600, 10, 60), {})
    settings.data.mkdir(mode=0o700)
    binding = FileBinding(31337, "0x", ADDRESSES["task_manager"], VOTE_KEYS[0].address)
    signed = SignedFile(settings.data / "signed.wal", binding=binding)
    validator = Validator(settings, chain, OPERATOR, VOTE_KEYS[0], signed, clock=clock, rng=seeded(3))
    try:
        yield validator
    finally:
        await validator._close()
        signed.close()


def test_a_stake_is_given_in_dollars() -> None:
    assert stake_of("1000") == 1_000_000_000
    assert stake_of("0.5") == 500_000
    with pytest.raises(InvalidAmount):
        stake_of("much")


def test_an_operator_key_is_made_where_money_is_test_money_only(settings: ValidatorSettings) -> None:
    made = operator_key(settings, is_local=True, rng=seeded(1))
    assert operator_key(settings, is_local=False, rng=seeded(2)).address == made.address
    other = replace(settings, operator_key=settings.data / "other.key")
    with pytest.raises(StartupError, match="Cannot read"):
        operator_key(other, is_local=False, rng=seeded(1))


def test_another_chain_refuses_to_start_unless_it_is_a_local_one_and_that_was_asked_for(
    settings: ValidatorSettings,
) -> None:
    key, file = _open_vote_key(settings, a_deployment(), seeded(1))
    file.close()
    restarted = a_deployment(genesis=b"\2" * 32)
    with pytest.raises(StartupError, match="--data of its own"):
        _open_vote_key(settings, restarted, seeded(2))
    follows = replace(settings, retire_unusable_key=True)
    with pytest.raises(StartupError, match="--data of its own"):
        _open_vote_key(follows, a_deployment(chain_id=1), seeded(2))
    again, file = _open_vote_key(follows, a_deployment(), seeded(2))
    file.close()
    assert again.address == key.address, "the same chain keeps its key"
    new, file = _open_vote_key(follows, restarted, seeded(2))
    file.close()
    assert new.address != key.address
    file.path.unlink()  # as in a backup
    restored, file = _open_vote_key(follows, restarted, seeded(4))
    file.close()
    assert restored.address not in {new.address, key.address}


async def test_health_tells_working_from_waiting_and_from_failing(settings: ValidatorSettings) -> None:
    async with a_validator(settings) as validator:
        assert validator.health() is Health.SYNCING
        assert [service.status for service in validator.services()] == ["Initializing", "Initializing"]
        follower = validator._follower
        follower.view.latest = a_state()
        assert validator.health() is Health.SYNCING
        follower.is_synced = True
        validator.on_chain(follower.view, [], is_whole=True)
        assert validator.health() is Health.OK
        assert [service.status for service in validator.services()] == ["Up", "Up"]
        for peer in validator._peers.peers()[-2:]:
            peer.failures = 1
        assert validator.health() is Health.SYNCING, "a backing service is not healthy"
        assert [service.status for service in validator.services()] == ["Up", "Down"]
        for peer in validator._peers.peers():
            peer.failures = 0
        jailed = ValidatorRecord(operator=OPERATOR.address, vote_key=VOTE_KEYS[0].address, slashed_uusd=1)
        follower.view.latest.validators[OPERATOR.address] = jailed
        assert validator.health() is Health.DOWN
        assert validator.status().is_jailed


async def test_status_counts_weight_and_names_peers(settings: ValidatorSettings) -> None:
    async with a_validator(settings) as validator:
        state = a_state()
        validator._follower.view.latest = state
        validator.on_chain(validator._follower.view, [], is_whole=True)
        status = validator.status()
        assert (status.weight, status.total_weight, status.validators) == (10, 40, 4)
        assert len(status.peers) == 4
        assert {peer.weight for peer in status.peers} == {10}
        assert b"eigen_registered_stakes" in validator.metrics()


async def test_a_reply_that_is_no_message_changes_nothing(settings: ValidatorSettings) -> None:
    async with a_validator(settings) as validator:
        validator._take_reply("/v1/match/messages", b"junk")
        validator._take_reply("/v1/snapshots/messages", b"{}")
        assert validator.status().messages_refused == 0


async def test_a_validator_is_not_ready_before_it_has_read_the_chain(settings: ValidatorSettings) -> None:
    ready = settings.data / "ready"
    async with a_validator(replace(settings, ready_file=ready, poll_s=0.01)) as validator:
        stop = asyncio.Event()
        syncing = asyncio.create_task(validator._sync(stop))
        await asyncio.sleep(0.05)
        assert not syncing.done()
        validator._follower.is_synced = True
        await asyncio.wait_for(syncing, 5)
        assert not ready.exists()
        validator._tell_ready(8_700)
        assert json.loads(ready.read_text())["vote_key"] == VOTE_KEYS[0].address


async def test_a_disk_that_fails_ends_the_process_with_its_reason(settings: ValidatorSettings) -> None:
    async with a_validator(settings) as validator:
        validator._fail(OSError("the disk is full"))
        validator._fail(OSError("again"))
        with pytest.raises(StartupError, match="stopped itself: the disk is full"):
            await validator._failed

"""What an operator's commands do: join, leave, look at a running validator, read its signatures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import NotFound, StartupError
from sparewatt.core.limits import MIB
from sparewatt.core.rng import SystemRng
from sparewatt.evm.chain_url import check_chain_url
from sparewatt.evm.client import EvmClient
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.machine.data_dir import make_private_dir
from sparewatt.protocol.api.validators import STATUS_PATH, SignedEntry, ValidatorStatus
from sparewatt.protocol.contracts.match import CommitList, Down, Observations, ReputationSnapshot, RevealList, Vote
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.validator.deployment import open_deployment, read_deployment_file
from sparewatt.validator.membership import Membership, StakeState
from sparewatt.validator.process import OPERATOR_KEY_FILE, RECORDS_FOLDER, URL_FILE, stake_of
from sparewatt.validator.record_fetch import get_bounded
from sparewatt.validator.record_files import record_file, recorded_attempts
from sparewatt.validator.signed_file import SIGNED_FILE, StoredSignature, read_signatures, signed_struct
from sparewatt.validator.transaction_sender import TransactionSender
from sparewatt.validator.vote_key import find_vote_key, open_vote_key, read_key, read_or_create_key, require_file

_T = TypeVar("_T")
ACTIVATE_WITHIN_S = 60.0
"""How long `join` waits; a public network's activation time is a day."""
LOCAL_VALIDATORS = "validators"
"""In the data directory of `sparewatt up`: a folder for each."""


async def join(
    *, data: Path, chain_url: str, contracts: Path, operator_key: Path | None, stake_usd: str, url: str
) -> StakeState:
    """Stake under this validator's vote key, made if there is none, and wait until the stake weighs if that is soon."""
    stake_uusd = stake_of(stake_usd)

    async def do(membership: Membership) -> StakeState:
        deployment = membership.deployment
        vote_key = find_vote_key(make_private_dir(data))
        if vote_key is None:
            vote_key, file = open_vote_key(
                data, identity=deployment.identity, task_manager=deployment.task_manager, rng=SystemRng()
            )
            file.close()
        require_file(data)
        await membership.join(vote_key, url=url, stake_uusd=stake_uusd)
        return await membership.activate(within_s=ACTIVATE_WITHIN_S)

    return await _with_membership(
        do, data=data, chain_url=chain_url, contracts=contracts, operator_key=operator_key, may_create=True
    )


async def leave(*, data: Path, chain_url: str, contracts: Path, operator_key: Path | None) -> StakeState:
    """The next step of leaving: unbond, or take the unbonded stake out."""
    return await _with_membership(
        lambda membership: membership.leave(),
        data=data,
        chain_url=chain_url,
        contracts=contracts,
        operator_key=operator_key,
    )


async def read_status(url: str) -> ValidatorStatus:
    """Of a running validator. Raises StartupError."""
    try:
        return msgspec.json.decode(await get_bounded(url + STATUS_PATH, bytes_max=MIB), type=ValidatorStatus)
    except (msgspec.MsgspecError, NotFound):
        raise StartupError(f"What answers at {url} is no validator of this release.") from None


def own_url(data: Path) -> str:
    """Where the validator of this data directory was last started. Raises StartupError."""
    try:
        return (data / URL_FILE).read_text().strip()
    except OSError:
        raise StartupError(
            f"No validator was started in {data}. Start one with 'sparewatt validator run', or give --url or --data."
        ) from None


def find_validators(data: Path, *, network: Path | None) -> list[Path]:
    """The data directory itself if a validator was started in it; else those of the network on this machine, if any."""
    if (data / URL_FILE).exists():
        return [data]
    return [] if network is None else sorted(path.parent for path in network.glob(f"{LOCAL_VALIDATORS}/*/{URL_FILE}"))


def record_sources(folders: Sequence[Path], order_id: str, attempt: int | None) -> tuple[tuple[str, ...], int | None]:
    """Of validators on this machine, and the attempt that is theirs: the newest on disk if none is given.

    A record on disk needs no running validator; who has none is asked at its URL. Raises StartupError.
    """
    if attempt is None:
        kept = (number for folder in folders for number in recorded_attempts(folder / RECORDS_FOLDER, order_id))
        attempt = max(kept, default=None)
    return tuple(_record_source(folder, order_id, attempt) for folder in folders), attempt


def _record_source(data: Path, order_id: str, attempt: int | None) -> str:
    path = record_file(data / RECORDS_FOLDER, order_id, attempt) if attempt is not None else None
    return str(path) if path is not None and path.exists() else own_url(data)


def signed_entries(data: Path, *, limit: int) -> list[SignedEntry]:
    """The newest signatures first. Raises StartupError."""
    return [_entry(stored) for stored in reversed(read_signatures(data / SIGNED_FILE)[-limit:])]


# internals


async def _with_membership(
    work: Callable[[Membership], Awaitable[_T]],
    *,
    data: Path,
    chain_url: str,
    contracts: Path,
    operator_key: Path | None,
    may_create: bool = False,
) -> _T:
    """`may_create`: on a chain of test money the operator's key is made if it is missing."""
    clock, file = SystemClock(), read_deployment_file(contracts)
    transport = HttpTransport(check_chain_url(chain_url))
    try:
        client = EvmClient(RpcClient(transport, clock))
        deployment = await open_deployment(client, file)
        path = operator_key or data / OPERATOR_KEY_FILE
        is_made = may_create and deployment.is_local
        key = read_or_create_key(path, rng=SystemRng()) if is_made else read_key(path)
        sender = TransactionSender(client, key, deployment.identity.chain_id, clock)
        return await work(Membership(client, deployment, sender, clock))
    finally:
        await transport.close()


def _entry(stored: StoredSignature) -> SignedEntry:
    struct = signed_struct(stored.record)
    digest = "0x" + struct_hash(struct).hex()
    match struct:
        case Vote():
            order_id = "0x" + struct.order_id.hex()
            return SignedEntry(
                kind="vote",
                signed_at=stored.at,
                order_id=order_id,
                attempt=struct.attempt,
                round=struct.round,
                hash=digest,
            )
        case CommitList() | RevealList():
            kind: Any = "commit_list" if isinstance(struct, CommitList) else "reveal_list"
            order_id = "0x" + struct.order_id.hex()
            items = len(struct.bid_ids)
            return SignedEntry(
                kind=kind, signed_at=stored.at, order_id=order_id, attempt=struct.attempt, hash=digest, items=items
            )
        case ReputationSnapshot():
            return SignedEntry(
                kind="snapshot", signed_at=stored.at, epoch=struct.epoch, round=struct.round, hash=digest
            )
        case Observations():
            items = len(struct.rows)
            return SignedEntry(kind="observations", signed_at=stored.at, epoch=struct.epoch, hash=digest, items=items)
        case Down():
            order_id = "0x" + struct.lease_id.hex()
            return SignedEntry(kind="down", signed_at=stored.at, order_id=order_id, term=struct.term, hash=digest)

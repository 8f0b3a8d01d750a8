"""Collects how auctions go from the validators, in the background, and keeps it in Postgres.

One process of a gateway does it. For each open attempt every validator is asked by long polls until the attempt is
over; then one whole record is kept, for replays. Validators are strangers: what they serve is checked by
`EvidenceBook`, bounded in size and time, and one that never answers holds up nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, StoreUnavailable
from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.leasing.relay.candidates import count_bondless
from sparewatt.leasing.relay.evidence import EvidenceBook, EvidenceRules, MatchEvidence, table_of
from sparewatt.leasing.relay.lookups import MarketAddresses, is_open, validator_urls, weights_of
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.market.chain_records import MarketState, OrderRecord, OrderState, SnapshotRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.record import read_record
from sparewatt.protocol.api.validators import (
    WAIT_MS_MAX,
    EpochTable,
    MatchProgress,
    PhaseName,
    progress_path,
    record_path,
    snapshot_path,
)
from sparewatt.protocol.contracts.match import Profile
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.store.lease_matches import LeaseMatchRow

_log = Logger("sparewatt.leasing")
MATCHES_AT_ONCE_MAX = 64
SAVE_S = 0.2
"""Between two writes of one match."""
POLL_S = WAIT_MS_MAX / 1_000 + 3.0
RETRY_S = 0.5
RETRY_S_MAX = 5.0
LINGER_S = 3.0
"""After the chain has decided: late votes and the record."""
PROGRESS_BYTES_MAX = 4 * MIB
"""Lists of 32 validators with 128 commits each have about 2 MB."""
RECORD_BYTES_MAX = 8 * MIB
TABLE_BYTES_MAX = 32 * MIB
"""About 100,000 providers."""
RECORDS_TRIED_MAX = 4
TABLES_KEPT = 4
HEDGE_S = 0.5
"""Until the next validator is asked for a table, which may be large."""
ATTEMPTS_REMEMBERED = 4_096
_progress = msgspec.json.Decoder(MatchProgress)
_table = msgspec.json.Decoder(EpochTable)
_UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What is not JSON of the right form, or nested without an end."""


class ValidatorSource(Protocol):
    """Implemented by StrangerClient. Raises NoAnswer."""

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes: ...


class EvidenceStore(Protocol):
    """Implemented by LeaseMatchStore."""

    async def save(
        self, order_id: str, attempt: int, *, opened_at: int, evidence: str, certificate: str | None = None
    ) -> None: ...

    async def save_record(self, order_id: str, attempt: int, *, record: str, said_by: str) -> None: ...

    async def find(self, order_id: str, attempt: int) -> LeaseMatchRow | None: ...

    async def find_acceptance(self, order_id: str, attempt: int) -> tuple[str, int] | None: ...


@dataclass(slots=True, eq=False)
class CollectedMatch:
    """One attempt under collection."""

    order: OrderRecord
    book: EvidenceBook
    urls: dict[str, str]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the chain has decided."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Signatures are checked in a thread; one reads or writes the book at a time."""
    saved_version: int = -1
    recorded: set[PhaseName] = field(default_factory=set)
    """Phases in which a validator's record was taken: bids are in it as soon as they are not sealed any more."""


@dataclass(slots=True, kw_only=True, eq=False)
class MatchCollector:
    validators: ValidatorSource
    store: EvidenceStore
    is_collector: Callable[[], bool]
    """Whether this process of the gateway does it."""
    asked_count: Callable[[str, int], int]
    """How many nodes were told of an attempt here."""
    clock: Clock
    _running: dict[tuple[str, int], tuple[CollectedMatch, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _done: dict[tuple[str, int], None] = field(default_factory=dict, init=False)
    _tables: dict[tuple[int, str], list[Profile]] = field(default_factory=dict, init=False)
    _open: dict[str, None] = field(default_factory=dict, init=False)
    """Orders whose attempt is open, as far as is known."""

    @property
    def has_open(self) -> bool:
        return bool(self._running)

    def follow(self, view: ChainView, changed: Collection[str] | None, addresses: MarketAddresses) -> None:
        """Begin with attempts that opened, let those end that the chain has decided."""
        state = view.latest
        for order_id in list(state.orders) if changed is None else changed:
            order = state.orders.get(order_id)
            if order is not None and order.state is OrderState.OPEN:
                self._open[order_id] = None
            else:
                self._open.pop(order_id, None)
        for key, (match, _) in self._running.items():
            if not is_open(state, *key):
                match.over.set()
        if not self.is_collector():
            return
        for order_id in list(self._open):
            key = (order_id, state.orders[order_id].attempt)
            if key not in self._running and key not in self._done and len(self._running) < MATCHES_AT_ONCE_MAX:
                self._begin(state, key, addresses)

    async def close(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # one match

    def _begin(self, state: MarketState, key: tuple[str, int], addresses: MarketAddresses) -> None:
        match = self._match_of(state, state.orders[key[0]], addresses)
        task = asyncio.get_running_loop().create_task(self._collect(match, state))
        self._running[key] = (match, task)
        task.add_done_callback(lambda done: self._end(key, done))

    def _end(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        self._done[key] = None
        if len(self._done) > ATTEMPTS_REMEMBERED:
            del self._done[next(iter(self._done))]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.crash("match_collection_crashed", error, order=key[0])

    def _match_of(self, state: MarketState, order: OrderRecord, addresses: MarketAddresses) -> CollectedMatch:
        opened_at = order.opened_at[order.attempt]
        keys = ((each.provider, each.node_key_at(opened_at)) for each in state.providers.values())
        weights = weights_of(state, order.stake_version)
        rules = EvidenceRules(
            domain=contract_domain(chain_id=addresses.chain_id, contract=addresses.task_manager),
            order_id=bytes.fromhex(order.order_id[2:]),
            attempt=order.attempt,
            terms=order.terms,
            stake_version=order.stake_version,
            snapshot_epoch=order.snapshot_epoch,
            weights=weights,
            node_keys={provider: node_key for provider, node_key in keys if node_key is not None},
        )
        evidence = MatchEvidence(
            order_id=order.order_id,
            attempt=order.attempt,
            seen_unix_s=self.clock.unix_s(),
            weights=weights,
            bondless=count_bondless(state, order.order_id),
        )
        return CollectedMatch(
            order, EvidenceBook(rules=rules, evidence=evidence), validator_urls(state, order.stake_version)
        )

    async def _collect(self, match: CollectedMatch, state: MarketState) -> None:
        await self._continue(match)
        asking = [asyncio.create_task(self._ask(match, vote_key, url)) for vote_key, url in match.urls.items()]
        asking.append(asyncio.create_task(self._fetch_table(match, state)))
        saving = asyncio.create_task(self._keep_saving(match))
        try:
            await match.over.wait()
            await asyncio.wait(asking, timeout=LINGER_S)
        finally:
            for task in (*asking, saving):
                task.cancel()
            await asyncio.gather(*asking, saving, return_exceptions=True)
        await self._note_acceptance(match)
        await self._save(match)
        with suppress(StoreUnavailable):
            await self._keep_record(match)
        await self._save(match)

    async def _continue(self, match: CollectedMatch) -> None:
        """With what a process before this one had collected."""
        order = match.order
        try:
            row = await self.store.find(order.order_id, order.attempt)
        except StoreUnavailable:
            return
        if row is not None:
            try:
                match.book.evidence = msgspec.json.decode(row.evidence, type=MatchEvidence)
            except msgspec.DecodeError:
                _log.warning("match_evidence_unreadable", order=order.order_id)

    async def _ask(self, match: CollectedMatch, vote_key: str, url: str) -> None:
        """Long polls until the attempt is over."""
        path, have, wait_s = progress_path(match.order.order_id, match.order.attempt), 0, RETRY_S
        while True:
            wait_ms = 0 if match.over.is_set() else WAIT_MS_MAX
            query = f"?have={have}&wait_ms={wait_ms}"
            try:
                body = await self.validators.get(url, path + query, within_s=POLL_S, bytes_max=PROGRESS_BYTES_MAX)
                progress = _progress.decode(body)
            except (NoAnswer, *_UNREADABLE) as error:
                problem = str(error) if isinstance(error, NoAnswer) else "its answer is not one of a validator"
                async with match.lock:
                    match.book.note_problem(vote_key, problem)
                if match.over.is_set():
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                continue
            async with match.lock:
                await asyncio.to_thread(match.book.take, vote_key, progress)
            await self._take_record(match, vote_key, url, progress.phase)
            is_same, have, wait_s = progress.version == have, progress.version, RETRY_S
            if match.over.is_set() or progress.phase == "over":
                return
            if is_same:
                await asyncio.sleep(SAVE_S)  # a validator that does not wait must not be asked in a loop

    async def _fetch_table(self, match: CollectedMatch, state: MarketState) -> None:
        """The snapshot's table, from the first validator that has the right one."""
        snapshot = state.snapshots.get(match.order.snapshot_epoch)
        if snapshot is None:
            return
        key = (snapshot.epoch, snapshot.root)
        if key not in self._tables:
            served = await self._first_table(match, snapshot)
            if served is None:
                return
            self._tables[key] = served
            if len(self._tables) > TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        async with match.lock:
            await asyncio.to_thread(match.book.set_table, self._tables[key])

    async def _first_table(self, match: CollectedMatch, snapshot: SnapshotRecord) -> list[Profile] | None:
        """Hedged: one after the other is asked, each a moment later, and the first right answer counts."""
        asking = set[asyncio.Task[list[Profile] | None]]()
        urls = list(match.urls.values())
        try:
            while urls or asking:
                if urls:
                    asking.add(asyncio.create_task(self._table(urls.pop(0), snapshot)))
                timeout_s = HEDGE_S if urls else POLL_S
                done, asking = await asyncio.wait(asking, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (found := task.result()) is not None:
                        return found
        finally:
            for task in asking:
                task.cancel()
        return None

    async def _table(self, url: str, snapshot: SnapshotRecord) -> list[Profile] | None:
        path = snapshot_path(snapshot.epoch)
        try:
            body = await self.validators.get(url, path, within_s=POLL_S, bytes_max=TABLE_BYTES_MAX)
        except NoAnswer:
            return None
        return await asyncio.to_thread(_read_table, body, snapshot.root, snapshot.count)

    async def _take_record(self, match: CollectedMatch, vote_key: str, url: str, phase: PhaseName) -> None:
        """While the match runs, once per phase."""
        if phase == "commit" or phase in match.recorded:
            return
        match.recorded.add(phase)
        try:
            await self._record(match, vote_key, url)
        except NoAnswer as error:
            match.recorded.discard(phase)
            async with match.lock:
                match.book.note_problem(vote_key, f"no record: {error}", is_first=True)

    async def _keep_record(self, match: CollectedMatch) -> None:
        """Of a validator that signed the certificate, or else of any that answered: the first that does not lie."""
        evidence, order = match.book.evidence, match.order
        signers = set(evidence.certificate.signers) if evidence.certificate is not None else set()
        urls = sorted(match.urls.items(), key=lambda each: (each[0] not in signers, each[0]))
        for vote_key, url in urls[:RECORDS_TRIED_MAX]:
            try:
                record = await self._record(match, vote_key, url)
            except NoAnswer as error:
                match.book.note_problem(vote_key, f"no record: {error}", is_first=True)
                continue
            if record is not None:
                await self.store.save_record(order.order_id, order.attempt, record=record, said_by=vote_key)
                return

    async def _record(self, match: CollectedMatch, vote_key: str, url: str) -> str | None:
        """None for one that lies, which is noted. Raises NoAnswer."""
        path = record_path(match.order.order_id, match.order.attempt)
        body = await self.validators.get(url, path, within_s=POLL_S, bytes_max=RECORD_BYTES_MAX)
        async with match.lock:
            is_good = await asyncio.to_thread(_read_record, match.book, vote_key, body)
        return body.decode() if is_good else None

    # the database

    async def _keep_saving(self, match: CollectedMatch) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save(match)

    async def _save(self, match: CollectedMatch) -> None:
        book, order = match.book, match.order
        async with match.lock:
            asked = max(book.evidence.asked, self.asked_count(order.order_id, order.attempt))
            if asked != book.evidence.asked:
                book.evidence.asked = asked
                book.version += 1
            if book.version == match.saved_version:
                return
            version, evidence = book.version, msgspec.json.encode(book.evidence).decode()
            certificate = book.certificate_text()
        try:
            await self.store.save(
                order.order_id,
                order.attempt,
                opened_at=order.opened_at[order.attempt],
                evidence=evidence,
                certificate=certificate,
            )
        except StoreUnavailable:
            return  # the next round stores it
        match.saved_version = version

    async def _note_acceptance(self, match: CollectedMatch) -> None:
        try:
            found = await self.store.find_acceptance(match.order.order_id, match.order.attempt)
        except StoreUnavailable:
            return
        if found is not None:
            match.book.evidence.tx, match.book.evidence.accepted_at = found
            match.book.version += 1


def _read_table(body: bytes, root: str, count: int) -> list[Profile] | None:
    try:
        return table_of(_table.decode(body).profiles, root=root, count=count)
    except _UNREADABLE:
        return None


def _read_record(book: EvidenceBook, vote_key: str, body: bytes) -> bool:
    """Takes what is in it. False for one that lies. Raises NoAnswer for what is no record."""
    try:
        record = read_record(msgspec.json.decode(body))
    except (InvalidField, *_UNREADABLE):
        raise NoAnswer("its answer is not a record") from None
    return book.take_record(vote_key, record)

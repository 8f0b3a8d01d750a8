"""Fetches what validators recorded of a match, over HTTP or from files. Nothing of it is believed here."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import msgspec

from sparewatt.core.errors import InvalidField, NotFound, StartupError
from sparewatt.core.limits import MIB
from sparewatt.machine.stranger_http import PRIVATE_TOO, PUBLIC_ONLY, CheckedResolver, NoAnswer
from sparewatt.market.match.record import AuctionRecord, read_record
from sparewatt.protocol.api.validators import RecordedAttempts, attempts_path, record_path

RECORD_BYTES_MAX = 64 * MIB
SOURCES_MAX = 64
"""Twice the validators that can have weight."""
ASK_S = 10.0
PEER_RECORD_BYTES_MAX = MIB
"""Of a validator that asks its peers after every match: their signatures are checked between its other work."""
_FOUND = 200
_MISSING = 404


@dataclass(frozen=True, slots=True)
class SilentSource:
    """A validator that gave no record, and why."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    attempt: int
    records: dict[str, AuctionRecord]
    """By source. Those whose context most of them share come first."""
    silent: tuple[SilentSource, ...] = ()


async def fetch_records(
    sources: Sequence[str], order_id: str, attempt: int | None, *, allows_private: bool = True
) -> FetchedRecords:
    """Of all sources that have one, of the newest attempt if none is given. Raises StartupError if nobody has one."""
    sources = list(dict.fromkeys(sources))[:SOURCES_MAX]
    number = attempt if attempt is not None else await newest_attempt(sources, order_id, allows_private=allows_private)
    asked = (fetch_record(source, order_id, number, allows_private=allows_private) for source in sources)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    records: dict[str, AuctionRecord] = {}
    silent: list[SilentSource] = []
    for source, answer in zip(sources, answers, strict=True):
        match answer:
            case AuctionRecord():
                records[source] = answer
            case StartupError() | NotFound() | InvalidField():
                silent.append(SilentSource(source, answer.message))
            case _:
                raise answer
    if not records:
        why = " ".join(dict.fromkeys(each.why for each in silent)) or "No validator is known; give --from."
        raise StartupError(f"No validator gave its record of attempt {number} of {order_id}. {why}")
    return FetchedRecords(number, _usual_first(records), tuple(silent))


async def fetch_record(source: str, order_id: str, attempt: int, *, allows_private: bool = True) -> AuctionRecord:
    """From a validator's URL, or a file. Raises StartupError, NotFound, InvalidField."""
    if is_url(source):
        url = source.rstrip("/") + record_path(order_id, attempt)
        body = await get_bounded(url, bytes_max=RECORD_BYTES_MAX, allows_private=allows_private)
    else:
        body = _read_file(Path(source))
    try:
        return read_record(msgspec.json.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidField(f"{source} has no record of a match.", param="record") from None


async def newest_attempt(sources: Sequence[str], order_id: str, *, allows_private: bool = True) -> int:
    """The highest that more than a third of those who answer have: one liar cannot name another. 0 if none is known."""
    urls = [source for source in sources if is_url(source)]
    asked = (_attempts_at(url, order_id, allows_private=allows_private) for url in urls)
    known = [attempts for attempts in await asyncio.gather(*asked) if attempts]
    files = [source for source in sources if not is_url(source)]
    for file in files:
        with contextlib.suppress(StartupError, NotFound, InvalidField):  # told when the records are read
            known.append([(await fetch_record(file, order_id, 0, allows_private=True)).context.attempt])
    counts = Counter(attempt for attempts in known for attempt in set(attempts))
    return max((attempt for attempt, count in counts.items() if 3 * count > len(known)), default=0)


async def get_bounded(url: str, *, bytes_max: int, allows_private: bool = True) -> bytes:
    """Raises StartupError, NotFound."""
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    try:
        async with (
            aiohttp.ClientSession(
                timeout=timeout,
                connector=aiohttp.TCPConnector(resolver=None if allows_private else CheckedResolver(PUBLIC_ONLY)),
            ) as session,
            session.get(url, allow_redirects=False) as reply,
        ):
            if reply.status == _MISSING:
                raise NotFound(f"The validator has nothing at {url}.")
            if reply.status != _FOUND:
                raise StartupError(f"The validator answered {url} with HTTP {reply.status}.")
            body = await reply.content.read(bytes_max + 1)
            while piece := await reply.content.read(bytes_max + 1 - len(body)):
                body += piece
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise StartupError(f"No validator answers at {url} ({type(error).__name__}). Is it running?") from None
    if len(body) > bytes_max:
        raise StartupError(f"The answer of {url} is too large.")
    return body


class RecordTransport(Protocol):
    """Implemented by StrangerClient."""

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
        """Raises NoAnswer."""
        ...


async def peer_records(
    transport: RecordTransport, urls: Sequence[str], order_id: str, attempt: int
) -> list[AuctionRecord]:
    """Of those that answer. `urls` are strangers' words, so the transport decides what is dialled."""
    path = record_path(order_id, attempt)
    asked = (transport.get(url, path, within_s=ASK_S, bytes_max=PEER_RECORD_BYTES_MAX) for url in urls[:SOURCES_MAX])
    answers = await asyncio.gather(*asked, return_exceptions=True)
    records: list[AuctionRecord] = []
    for answer in answers:
        if isinstance(answer, bytes):
            with contextlib.suppress(InvalidField, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                records.append(read_record(msgspec.json.decode(answer)))
        elif not isinstance(answer, NoAnswer):
            raise answer
    return records


def dialled(urls: Iterable[str], *, allows_private: bool) -> list[str]:
    """Those of the URLs that strangers wrote which may be dialled."""
    rules = PRIVATE_TOO if allows_private else PUBLIC_ONLY
    return [url for url in urls if rules.refusal_of(url) is None]


def is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


async def _attempts_at(url: str, order_id: str, *, allows_private: bool) -> list[int]:
    """Empty if it does not say."""
    try:
        path = url.rstrip("/") + attempts_path(order_id)
        body = await get_bounded(path, bytes_max=MIB, allows_private=allows_private)
        return msgspec.json.decode(body, type=RecordedAttempts).attempts
    except (StartupError, NotFound, msgspec.MsgspecError):
        return []


def _usual_first(records: dict[str, AuctionRecord]) -> dict[str, AuctionRecord]:
    """A replay takes the context of the first record, so that must not be one validator's own invention."""
    contexts = [record.context for record in records.values()]
    return dict(sorted(records.items(), key=lambda item: -contexts.count(item[1].context)))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartupError(f"Cannot read {path}: {error.strerror}.") from None

"""Runs the watch for outages: drives `OutageWatch` by the chain, the heartbeats and the other validators' votes.

As for matches: what was signed is made durable, then sent, then submitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.log import Logger
from sparewatt.market.chain_view import ChainView
from sparewatt.market.outages.model import DownCertificate, HeardBeats, Hearing, OutageOutput
from sparewatt.market.outages.outage_watch import OutageWatch
from sparewatt.protocol.api.validators import OUTAGE_MESSAGES_PATH
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.outage_messages import OutageMessage, encode_outage_message
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.validator.signed_file import SignedFile, SignedFileFailed, SignedTwice

_log = Logger("sparewatt.validator")
LOOKS_PER_BEAT = 2
ASKING_LOOKS = 6
"""For so many looks an answer of another validator counts: three beats."""


class ChainSight(Protocol):
    """Implemented by MarketFollower."""

    is_synced: bool

    @property
    def is_away(self) -> bool: ...

    def chain_unix_s(self) -> int: ...


class OutageHost:
    def __init__(
        self,
        *,
        key: SigningKey,
        domain: Domain,
        attempt_s: int,
        beat_ms: int,
        submit_step_ms: int,
        signed: SignedFile,
        beats: HeardBeats,
        sight: ChainSight,
        answers: Callable[[], Mapping[str, int]],
        send: Callable[[Sequence[str], str, bytes], None],
        submit: Callable[[DownCertificate], None],
        fail: Callable[[Exception], None],
        clock: Clock,
    ) -> None:
        """`answers`: how often each other validator has answered, by vote key."""
        self._own = key.address
        self._signed = signed
        self._beats, self._sight, self._answers = beats, sight, answers
        self._send, self._submit, self._fail = send, submit, fail
        self._clock = clock
        self._look_s = beat_ms / 1_000 / LOOKS_PER_BEAT
        self._timer: Timer | None = None
        self._others: tuple[str, ...] = ()
        self._answered: deque[Mapping[str, int]] = deque(maxlen=ASKING_LOOKS)
        """The answers at each look while it asks, the oldest first."""
        self._watch = OutageWatch(
            key=key,
            domain=domain,
            attempt_s=attempt_s,
            beat_ms=beat_ms,
            submit_step_ms=submit_step_ms,
            stored=signed.of_outages(),
        )

    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        del events, is_whole
        state = view.latest
        voters = (each.vote_key for each in state.weights_at(state.stake_version))
        self._others = tuple(vote_key for vote_key in voters if vote_key != self._own)
        self._watch.follow(state)
        if self._timer is None:
            self._tick()

    def receive(self, message: OutageMessage) -> OutageOutput:
        if self._timer is None:
            return OutageOutput(code=MessageRefusal.BEHIND_CHAIN)
        output = self._watch.receive(message, self._hearing())
        self._carry_out(output)
        return output

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # internals

    def _tick(self) -> None:
        self._timer = self._clock.call_later(self._look_s, self._tick)
        output = self._watch.tick(self._hearing())
        if output.is_asking:
            self._answered.append(dict(self._answers()))
        else:
            self._answered.clear()
        self._carry_out(output)

    def _hearing(self) -> Hearing:
        return Hearing(
            beats=self._beats,
            unix_s=self._sight.chain_unix_s(),
            now_ms=int(self._clock.now_s() * 1_000),
            is_current=self._sight.is_synced and not self._sight.is_away,
            validators=len(self._others),
            reached_validators=self._reached(),
        )

    def _reached(self) -> int:
        """Validators that answered since they were asked: who answered long ago may be cut off now."""
        if not self._answered:
            return 0
        answers, before = self._answers(), self._answered[0]
        return sum(answers.get(vote_key, 0) > before.get(vote_key, 0) for vote_key in self._others)

    def _carry_out(self, output: OutageOutput) -> None:
        """Raises SignedFileFailed: then nothing has left, and the process must end."""
        try:
            self._signed.append(output.signed, at=self._sight.chain_unix_s())
        except SignedFileFailed as error:
            self._fail(error)
            raise
        except SignedTwice as error:
            _log.warning("signature_refused", why=str(error))
            output.broadcast, output.replies, output.certificates = [], [], []
        for vote in output.signed:
            _log.info("provider_down_signed", lease="0x" + vote.down.lease_id.hex(), term=vote.down.term)
        for message in output.broadcast:
            self._send(self._others, OUTAGE_MESSAGES_PATH, encode_outage_message(message))
        for certificate in output.certificates:
            self._submit(certificate)

"""Takes the sealed secrets of a lease: bytes that only a candidate's node can open. Nothing here can read them.

Who the candidates are is for the renter's own client to check; here only the form is, and that nobody fills the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField, UnprocessableContent
from sparewatt.leasing.orders.order_service import LeaseOrderService
from sparewatt.market.chain_records import LeaseState, OrderState
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.link.lease_tasks import SEALED_CHARS_MAX
from sparewatt.store.lease_acts import LeaseActStore
from sparewatt.store.lease_orders import LeaseOrderRow

_SEALED = re.compile(r"0x([0-9a-f]{2})+")

SealedSecrets = Mapping[str, Mapping[str, str]]
"""By candidate, then by name: 0x-hex."""


@dataclass(frozen=True, slots=True)
class SecretIntake:
    orders: LeaseOrderService
    store: LeaseActStore

    def candidates(self, row: LeaseOrderRow) -> tuple[int, tuple[str, ...]]:
        """The attempt, and to whom its secrets are sealed, the winner first. Raises UnprocessableContent."""
        order_id, state = self.orders.on_chain(row)
        order = state.orders.get(order_id)
        if order is None or order.state is not OrderState.MATCHED or order.certificate is None:
            raise UnprocessableContent(
                "Secrets are sealed to the candidates of a match, and this order has none. 'sparewatt lease show' "
                "tells how it stands."
            )
        chosen = order.certificate.record.chosen
        return order.attempt, tuple(each.provider for each in chosen if each.provider != NO_PROVIDER)

    async def save(self, row: LeaseOrderRow, sealed: SealedSecrets, *, attempt: int) -> None:
        """All of them, or nothing. The same again, or new values, replace what was there."""
        now, candidates = self.candidates(row)
        if attempt != now:
            raise UnprocessableContent("Another auction has been held meanwhile. Seal the secrets to its candidates.")
        for provider, by_name in sealed.items():
            if provider not in candidates:
                raise InvalidField(f"{provider[:42]} is no candidate of this lease.", param="sealed")
            _check_form(row, by_name)
        for provider, by_name in sealed.items():
            for name, text in by_name.items():
                await self.store.save_secret(row.order_id or "", attempt, provider=provider, name=name, sealed=text)

    async def missing(self, row: LeaseOrderRow) -> list[str]:
        """Names whose values the provider that has the lease was not sent."""
        if not row.secrets or row.order_id is None:
            return []
        _, state = self.orders.on_chain(row)
        order, lease = state.orders.get(row.order_id), state.leases.get(row.order_id)
        if order is None or lease is None or lease.state is LeaseState.CLOSED:
            return []
        if lease.provider is None:
            return list(row.secrets)
        found = await self.store.secrets_of(row.order_id, order.attempt, provider=lease.provider)
        return [name for name in row.secrets if name not in found]


def _check_form(row: LeaseOrderRow, by_name: Mapping[str, str]) -> None:
    unknown = [name for name in by_name if name not in row.secrets]
    if unknown:
        raise InvalidField(f"The order names no secret {unknown[0][:70]!r}.", param="sealed")
    if not all(_SEALED.fullmatch(text) for text in by_name.values()):
        raise InvalidField("A sealed secret is 0x and hex digits in lower case.", param="sealed")
    if sum(map(len, by_name.values())) > SEALED_CHARS_MAX:
        raise InvalidField(
            f"The secrets of a lease have at most {SEALED_CHARS_MAX // 2 // 1024} KiB together, sealed.", param="sealed"
        )

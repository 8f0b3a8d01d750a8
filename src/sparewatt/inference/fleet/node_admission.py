"""From a new socket to a node that may join: a place for the handshake, the node's proof, its token, the bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt import __version__
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.public_rate_limits import client_network
from sparewatt.core.clock import Clock
from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.rng import Rng
from sparewatt.inference.fleet.fleet_limits import FleetBounds, FleetRates, ModelTally
from sparewatt.inference.fleet.node_owners import NodeOwners
from sparewatt.link.handshake import authenticate_node
from sparewatt.link.handshake_places import HandshakePlace, HandshakePlaces
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.node_report import NodeSpecs


class AdmittedNode(NamedTuple):
    id: NodeId
    owner: AccountId
    specs: NodeSpecs
    takes_names: bool


@dataclass(slots=True, kw_only=True)
class NodeAdmission:
    owners: NodeOwners
    """Of all nodes that are known here."""
    tokens: JoinTokens
    hosts: Collection[str]
    bounds: FleetBounds
    rates: FleetRates
    clock: Clock
    rng: Rng
    places: HandshakePlaces = field(default_factory=HandshakePlaces)
    tally: ModelTally = field(default_factory=ModelTally)
    """Of connected nodes; the registry of links writes it."""

    async def admit(self, socket: Socket, *, address: str) -> AdmittedNode:
        """Raises JoinRefused, ProtocolViolation, LinkLost or StoreUnavailable."""
        network = client_network(address)
        with self._place(network, socket) as place:
            node = await authenticate_node(
                socket,
                hosts=self.hosts,
                gateway_version=__version__,
                rng=self.rng,
                on_hello=lambda node_id: self._hear(place, node_id),
            )
            self.places.prove(place, account=self.owners.get(node.node_id), now_s=self.clock.now_s())
            self.rates.check_join(node.node_id, now_s=self.clock.now_s())
            owner = await self.tokens.admit(node.node_id, node.token)
            specs = node.read_specs()
            self.check_models(node.node_id, owner, len(specs.models))
            self.rates.check_account(owner, models=len(specs.models), now_s=self.clock.now_s())
        self.places.note_joined(network)
        return AdmittedNode(node.node_id, owner, specs, node.takes_names)

    def check_models(self, node_id: NodeId, owner: AccountId, models: int) -> None:
        """Whether the account's bounds allow the node so many. Raises JoinRefused."""
        is_new, nodes_known = self.owners.get(node_id) != owner, self.owners.count_of(owner)
        others = self.tally.others(node_id, owner)
        self.bounds.check(models, is_new=is_new, nodes_known=nodes_known, others_models=others)

    @contextmanager
    def _place(self, network: str, socket: Socket) -> Iterator[HandshakePlace]:
        place = self.places.enter(network, now_s=self.clock.now_s(), evict=socket.abort)
        if place is None:
            raise JoinRefused("Too many nodes are joining at once. Try again.", reason="busy", final=False)
        try:
            yield place
        finally:
            self.places.leave(place)

    def _hear(self, place: HandshakePlace, node_id: NodeId) -> None:
        self.places.hear(place, is_known=node_id in self.owners, now_s=self.clock.now_s())

"""The model catalog: which network name each model of a node gets, and which model a client means by an id.

A name comes from the operator's aliases, else from the shipped table (`policy/model_names`), else from nodes whose
servers report the same weights digest, else from the id itself. Every process of a gateway derives the same names,
because they depend on the reports and not on the order in which these came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.model_names.parser import aliases_of, identify, split_quantization
from sparewatt.policy.model_names.size_check import contradiction
from sparewatt.policy.quantization import UNKNOWN, quantization_of
from sparewatt.protocol.link.node_report import MODEL_ID_CHARS_MAX, ModelReport, NodeLoad, NodeSpecs

ANY_REST = "*"
"""At the end of an operator's alias: it stands for all names that begin so, unless a node serves that very name."""
UNVERIFIED = "unverified/"
"""Before the id of a model whose size contradicts its name: no client that asks for the real one is sent there."""

WITNESSES_MIN = 2
"""Owners, other than the node's, that must call the same weights by one name before a digest alone gives that name."""

SAME_SIZE = 0.01
"""The same digest is the same file: its size may differ by how servers round it, not more."""


class DigestWitness(NamedTuple):
    """A node that calls weights with a digest by a name that the table or the operator knows."""

    owner: AccountId | None
    name: str
    weights_bytes: int


class ModelNaming(NamedTuple):
    """The network name of one model of a node, and why it is not the one that its id suggests."""

    name: str
    quantization: str | None
    why: str | None = None


class ResolvedModel(NamedTuple):
    """What a client means by an id."""

    name: str
    quantization: str | None = None
    """The one that the id asks for."""


class ModelCatalog:
    def __init__(self, aliases: Mapping[str, str] | None = None) -> None:
        """`aliases`: the operator's, from an id or a weights digest to a network name."""
        self._aliases: dict[str, str] = dict(aliases or {})
        self._patterns = _patterns(self._aliases)
        self._witnesses: dict[str, dict[NodeId, DigestWitness]] = {}
        self._nameless: dict[str, set[NodeId]] = {}
        """By digest, nodes that have it under an id that says nothing: their names depend on the witnesses."""
        self._digests: dict[NodeId, set[str]] = {}
        self._renamed: dict[NodeId, dict[str, str]] = {}
        """Of each node, its server's ids that have another network name."""
        self._by_digest: dict[str, str] = {}
        """Ids of servers that a digest gave another name."""
        self._stale: set[NodeId] = set()

    @property
    def aliases(self) -> Mapping[str, str]:
        """The operator's."""
        return self._aliases

    def set_aliases(self, aliases: Mapping[str, str]) -> bool:
        """Whether they have changed. All nodes must then be named again."""
        if aliases == self._aliases:
            return False
        self._aliases = dict(aliases)
        self._patterns = _patterns(self._aliases)
        return True

    # reports of nodes

    def named(self, node_id: NodeId, owner: AccountId | None, specs: NodeSpecs) -> NodeSpecs:
        """The specs with network names; may be given its own result. Two models of a node never get the same name."""
        witnessed = self._forget(node_id)
        found: dict[int, ModelReport] = {}
        used: set[str] = set()
        for position, report in sorted(enumerate(specs.models), key=lambda each: _rank(each[1])):
            named = self._with_name(node_id, owner, report, used)
            if named is not None:
                used.add(named.id)
                found[position] = named
        renamed = {named.served_as: named.id for named in found.values() if named.served_as is not None}
        if renamed:
            self._renamed[node_id] = renamed
        self._note_changed(node_id, witnessed)
        models = tuple(found[position] for position in sorted(found))
        return specs if models == specs.models else msgspec.structs.replace(specs, models=models)

    def forget(self, node_id: NodeId) -> None:
        """A node that is no longer known vouches for nothing."""
        self._note_changed(node_id, self._forget(node_id))

    def with_names(self, node_id: NodeId, load: NodeLoad) -> NodeLoad:
        """A report of load with network names."""
        renamed = self._renamed.get(node_id) if load.foreign_models else None
        if renamed is None:
            return load
        names = tuple(renamed.get(model, model) for model in load.foreign_models)
        return msgspec.structs.replace(load, foreign_models=names)

    def take_stale(self) -> Collection[NodeId]:
        """Nodes whose names may change by what other nodes have reported since."""
        stale, self._stale = self._stale, set()
        return stale

    def naming_of(self, owner: AccountId | None, report: ModelReport) -> ModelNaming:
        """The name of one model, before models of the same name on one node are told apart."""
        server_id, digest = server_id_of(report), report.weights_digest
        alias = self._aliases.get(server_id) or (self._aliases.get(digest) if digest else None)
        identity = identify(alias) if alias is not None else identify(server_id)
        quantization = report.quantization or identity.quantization or identify(server_id).quantization
        why = contradiction(identity, weights_bytes=report.weights_bytes, quantization=quantization)
        if why is not None:
            return ModelNaming(f"{UNVERIFIED}{server_id}"[:MODEL_ID_CHARS_MAX], quantization, why)
        if alias is None and not identity.is_known and digest is not None:
            vouched = self._vouched_name(digest, owner, report.weights_bytes)
            if vouched is not None:
                return ModelNaming(vouched, quantization)
        return ModelNaming(identity.name, quantization)

    def _with_name(
        self, node_id: NodeId, owner: AccountId | None, report: ModelReport, used: Collection[str]
    ) -> ModelReport | None:
        """None for a model that the node has reported twice."""
        server_id, naming = server_id_of(report), self.naming_of(owner, report)
        self._note_digest(node_id, owner, report, naming)
        choices = (naming.name, with_quantization(naming.name, naming.quantization), server_id)
        name = next((choice for choice in choices if choice not in used), None)
        if name is None:
            return None
        served_as = server_id if name != server_id else None
        if (name, served_as, naming.quantization) == (report.id, report.served_as, report.quantization):
            return report
        return msgspec.structs.replace(report, id=name, served_as=served_as, quantization=naming.quantization)

    # weights digests

    def _note_digest(self, node_id: NodeId, owner: AccountId | None, report: ModelReport, naming: ModelNaming) -> None:
        digest, server_id = report.weights_digest, server_id_of(report)
        if digest is None or naming.why is not None:
            return
        self._digests.setdefault(node_id, set()).add(digest)
        if identify(self._aliases.get(server_id, server_id)).is_known:
            witness = DigestWitness(owner, naming.name, report.weights_bytes)
            self._witnesses.setdefault(digest, {})[node_id] = witness
            return
        self._nameless.setdefault(digest, set()).add(node_id)
        if naming.name == identify(server_id).name:
            self._by_digest.pop(server_id, None)
        elif len(self._by_digest) < WORDS_REMEMBERED_MAX:
            self._by_digest[server_id] = naming.name

    def _vouched_name(self, digest: str, owner: AccountId | None, weights_bytes: int) -> str | None:
        """The name that others give to the same weights: the owner's other nodes, or two other owners, all agreeing."""
        found = [
            witness
            for witness in self._witnesses.get(digest, {}).values()
            if weights_bytes and abs(witness.weights_bytes - weights_bytes) <= SAME_SIZE * weights_bytes
        ]
        own = {witness.name for witness in found if owner is not None and witness.owner == owner}
        if len(own) == 1:
            return own.pop()
        names, owners = {witness.name for witness in found}, {witness.owner for witness in found} - {owner, None}
        return names.pop() if len(names) == 1 and len(owners) >= WITNESSES_MIN else None

    def _forget(self, node_id: NodeId) -> dict[str, DigestWitness]:
        """Before a node is named again. Returns what it vouched for."""
        self._renamed.pop(node_id, None)
        witnessed: dict[str, DigestWitness] = {}
        for digest in self._digests.pop(node_id, ()):
            witnesses, nameless = self._witnesses.get(digest, {}), self._nameless.get(digest, set())
            witness = witnesses.pop(node_id, None)
            if witness is not None:
                witnessed[digest] = witness
            nameless.discard(node_id)
            if not witnesses:
                self._witnesses.pop(digest, None)
            if not nameless:
                self._nameless.pop(digest, None)
        return witnessed

    def _note_changed(self, node_id: NodeId, before: Mapping[str, DigestWitness]) -> None:
        """Nodes with a digest for which this one vouches differently than before must be named again."""
        for digest in {*before, *self._digests.get(node_id, ())}:
            if self._witnesses.get(digest, {}).get(node_id) != before.get(digest):
                self._stale |= self._nameless.get(digest, set()) - {node_id}

    # requests of clients

    def resolve(self, asked: str, *, is_served: Callable[[str], bool]) -> ResolvedModel:
        """The model that a client names. `is_served`: whether a node has a model of just that name."""
        if asked in self._aliases:
            return _resolved(self._aliases[asked])[0]
        resolved, is_known = _resolved(asked)
        if self._patterns and not is_known and not is_served(asked):
            target = next((target for start, target in self._patterns if asked.startswith(start)), None)
            if target is not None:
                return _resolved(target)[0]
        if is_known or resolved.name == asked:
            vouched = None if is_known or is_served(asked) else self._by_digest.get(asked)
            return resolved if vouched is None else ResolvedModel(vouched)
        return ResolvedModel(asked) if is_served(asked) else resolved

    def aliases_of(self, name: str) -> list[str]:
        """What else clients may call a model: well-known ids, and the operator's aliases."""
        named = (alias for alias, target in self._aliases.items() if identify(target).name == name)
        return [*aliases_of(name), *sorted(named)]


def _patterns(aliases: Mapping[str, str]) -> list[tuple[str, str]]:
    """Aliases of all names with one beginning, and their targets; the longest beginning first."""
    found = [(name.removesuffix(ANY_REST), target) for name, target in aliases.items() if name.endswith(ANY_REST)]
    return sorted(found, key=lambda pair: -len(pair[0]))


def server_id_of(report: ModelReport) -> str:
    """What the node's model server calls it."""
    return report.id if report.served_as is None else report.served_as


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def with_quantization(name: str, quantization: str | None) -> str:
    """The name of a second quantization of a model on one node."""
    if quantization is None or split_quantization(f"{name}:{quantization.lower()}")[1] is None:
        return name
    return f"{name}:{quantization.lower()}"


def base_name(name: str, served: Collection[str]) -> str:
    """The model's name without the quantization by which one node tells two apart."""
    base, quantization = split_quantization(name)
    return base if quantization is not None and base in served else name


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def _resolved(asked: str) -> tuple[ResolvedModel, bool]:
    """What an id says by itself, and whether the shipped table has it."""
    identity = identify(asked)
    is_word = quantization_of(identity.quantization) != UNKNOWN
    return ResolvedModel(identity.name, identity.quantization if is_word else None), identity.is_known


def _rank(report: ModelReport) -> tuple[int, str]:
    """Of two quantizations on one node the smaller gets the plain name: it fits, and is faster."""
    return report.weights_bytes, server_id_of(report)

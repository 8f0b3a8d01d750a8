"""A valid call of every `…_with_signature` function. Tests flip its bits, replay it and let its deadline pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparewatt.protocol.contracts import meta_transactions
from sparewatt.protocol.contracts.meta_transactions import NodeKey
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, struct_hash
from tests.evm.auction import RENTER, place_order
from tests.evm.machine import Contract, now, wait
from tests.evm.network import OPERATOR, ROOT_DELAY_S, USD, Network, key
from tests.order_terms import order_terms

PRICES = {0: 2 * USD, 1: USD}
CLAIMS = (1, 2, 3, 4, 24, 8, 1, b"\1" * 32)
OWNER, NODE, HEIR = key(81), key(82), key(83)
SPEC = b"\6" * 32


@dataclass
class Twin:
    """A call as a relayer sends it. Its last two arguments are the deadline and the signature."""

    contract: Contract
    function: str
    signer: SigningKey
    arguments: tuple[Any, ...]
    unsigned: tuple[int, ...] = ()
    """Indices of arguments that this signature does not cover."""


def twin(
    network: Network,
    contract: Contract,
    function: str,
    signer: SigningKey,
    message: Callable[[int, int], TypedMessage],
    *arguments: Any,
    unsigned: tuple[int, ...] = (),
) -> Twin:
    """`message` makes the typed message from nonce and deadline."""
    deadline = now() + 100
    signature = network.signed(signer, contract, message(contract.nonces(signer.address), deadline))
    return Twin(contract, function, signer, (*arguments, deadline, signature), unsigned)


def settlement_twins(n: Network) -> list[Twin]:
    n.fund(OWNER.address)
    me = OWNER.address
    n.settlement.deposit(me, USD, who=me)
    entry = PayoutEntry(me, 7, 0)
    tree = settlement_tree([entry])
    n.settlement.post_root(0, 1, tree.root, 1, 7, who=OPERATOR)
    wait(ROOT_DELAY_S)
    return [
        twin(
            n,
            n.settlement,
            "deposit_with_signature",
            OWNER,
            lambda nonce, by: meta_transactions.Deposit(me, HEIR.address, 5, nonce, by),
            me,
            HEIR.address,
            5,
        ),
        twin(
            n,
            n.settlement,
            "claim_to_bond_with_signature",
            OWNER,
            lambda nonce, by: meta_transactions.ClaimToBond(me, 0, 7, nonce, by),
            0,
            1,
            entry.values(),
            0,
            (),
            unsigned=(1, 3, 4),
        ),
        twin(
            n,
            n.settlement,
            "request_exit_with_signature",
            OWNER,
            lambda nonce, by: meta_transactions.RequestExit(me, 5, nonce, by),
            me,
            5,
        ),
    ]


def money_twins(n: Network) -> list[Twin]:
    order = place_order(n)
    provider = n.providers[0]
    renter = RENTER.address
    refunded = OWNER.address  # not the renter, whose next order would use its refund up
    n.orders.cancel_order(place_order(n, renter=OWNER).order_id, who=refunded)
    return [
        twin(
            n,
            n.escrow,
            "top_up_with_signature",
            RENTER,
            lambda nonce, by: meta_transactions.TopUp(renter, order.order_id, 5, nonce, by),
            renter,
            order.order_id,
            5,
        ),
        twin(
            n,
            n.escrow,
            "withdraw_with_signature",
            OWNER,
            lambda nonce, by: meta_transactions.Withdraw(refunded, HEIR.address, nonce, by),
            refunded,
            HEIR.address,
        ),
        twin(
            n,
            n.stakes,
            "deposit_bond_with_signature",
            provider.owner,
            lambda nonce, by: meta_transactions.DepositBond(provider.address, HEIR.address, 5, nonce, by),
            provider.address,
            HEIR.address,
            5,
        ),
        twin(
            n,
            n.stakes,
            "unbond_bond_with_signature",
            provider.owner,
            lambda nonce, by: meta_transactions.UnbondBond(provider.address, 5, nonce, by),
            provider.address,
            5,
        ),
    ]


def registry_twins(n: Network) -> list[Twin]:
    me, registry = OWNER.address, n.registry
    proof = n.signed(NODE, registry, NodeKey(me, NODE.address))
    known = n.providers[0]
    renewed = n.signed(NODE, registry, NodeKey(known.address, NODE.address))
    wait(61)
    return [
        twin(
            n,
            registry,
            "register_with_signature",
            OWNER,
            lambda nonce, by: meta_transactions.Register(me, *CLAIMS, NODE.address, nonce, by),
            me,
            CLAIMS,
            NODE.address,
            proof,
        ),
        twin(
            n,
            registry,
            "set_claims_with_signature",
            known.owner,
            lambda nonce, by: meta_transactions.SetClaims(known.address, *CLAIMS, nonce, by),
            known.address,
            CLAIMS,
        ),
        twin(
            n,
            registry,
            "set_status_with_signature",
            known.owner,
            lambda nonce, by: meta_transactions.SetStatus(known.address, 3, nonce, by),
            known.address,
            3,
        ),
        twin(
            n,
            registry,
            "set_node_key_with_signature",
            known.owner,
            lambda nonce, by: meta_transactions.SetNodeKey(known.address, NODE.address, nonce, by),
            known.address,
            NODE.address,
            renewed,
        ),
    ]


def order_twins(n: Network) -> list[Twin]:
    order = place_order(n)
    policy, renter = order_terms(), RENTER.address
    unmatched = place_order(n, max_attempts=0)
    task = unmatched.task(unmatched.book({}))
    n.tasks.accept_no_match(task.values(), 0, unmatched.votes(task))
    expires = now() + 500
    return [
        twin(
            n,
            n.orders,
            "create_order_with_signature",
            RENTER,
            lambda nonce, by: meta_transactions.CreateOrder(
                renter, struct_hash(policy), SPEC, USD, expires, 1, nonce, by
            ),
            renter,
            policy.values(),
            SPEC,
            USD,
            expires,
            1,
        ),
        twin(
            n,
            n.orders,
            "cancel_order_with_signature",
            RENTER,
            lambda nonce, by: meta_transactions.CancelOrder(renter, order.order_id, nonce, by),
            renter,
            order.order_id,
        ),
        twin(
            n,
            n.orders,
            "reopen_with_signature",
            RENTER,
            lambda nonce, by: meta_transactions.Reopen(renter, unmatched.order_id, nonce, by),
            renter,
            unmatched.order_id,
            policy.values(),
        ),
    ]


def lease_twins(n: Network) -> list[Twin]:
    """Of a lease that waits for its start, of one that runs, and of one that is paused."""
    pending, running, paused = (place_order(n) for _ in range(3))
    pending.match(PRICES)
    running.started(PRICES)
    paused.started(PRICES)
    n.orders.pause(paused.order_id, who=RENTER.address)
    proposed = place_order(n)
    proposed.started(PRICES)
    n.moves.propose_update(proposed.order_id, SPEC, USD, 3600, 1, who=RENTER.address)
    node = pending.provider.node_key
    renter = RENTER.address

    def simple(
        function: str, shape: Any, signer: SigningKey, lease: bytes, *extra: Any, contract: Contract = n.orders
    ) -> Twin:
        return twin(
            n,
            contract,
            function,
            signer,
            lambda nonce, by: shape(signer.address, lease, *extra, nonce, by),
            signer.address,
            lease,
            *extra,
        )

    assert renter != node.address
    return [
        simple("confirm_start_with_signature", meta_transactions.ConfirmStart, node, pending.order_id, SPEC),
        simple(
            "propose_update_with_signature",
            meta_transactions.ProposeUpdate,
            RENTER,
            running.order_id,
            *(SPEC, USD, 3600, 3),
            contract=n.moves,
        ),
        simple(
            "accept_update_with_signature",
            meta_transactions.AcceptUpdate,
            node,
            proposed.order_id,
            *(SPEC, USD, 3600, 1),
            contract=n.moves,
        ),
        simple("pause_with_signature", meta_transactions.Pause, RENTER, running.order_id),
        simple("resume_with_signature", meta_transactions.Resume, RENTER, paused.order_id),
        simple("give_notice_with_signature", meta_transactions.GiveNotice, node, running.order_id),
        simple("close_with_signature", meta_transactions.Close, RENTER, running.order_id, 1),
    ]


def all_twins(network: Network) -> list[Twin]:
    return [
        case
        for group in (settlement_twins, registry_twins, money_twins, order_twins, lease_twins)
        for case in group(network)
    ]

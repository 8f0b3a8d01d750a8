"""What validators agree on is what the contracts take: certificates of snapshots, and the proof of a double vote."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.faults import snapshot_double_sign
from sparewatt.market.snapshots.model import SnapshotCertificate
from sparewatt.protocol.contracts.snapshot_messages import SignedSnapshot, SnapshotMessage
from sparewatt.protocol.typed_message import message_digest
from tests.evm.machine import now, rolled_back, set_time
from tests.evm.network import MIN_STAKE, Network, bare_network
from tests.unit.market.snapshots.snapshot_network import START_S, Member, SnapshotNetwork, provider_facts, seen


class ContractNetwork(SnapshotNetwork):
    """Four validators whose certificates go to the compiled `task_manager`."""

    def __init__(self, chain: Network) -> None:
        keys = [validator.vote_key for validator in chain.validators]
        providers = [provider_facts(provider.address) for provider in chain.providers]
        super().__init__((MIN_STAKE,) * 4, providers=providers, domain=chain.domain(chain.tasks), keys=keys)
        self.chain = chain
        self.began_s = now()
        for member in self.members:
            member.rows = tuple(seen(provider.address) for provider in chain.providers)

    def post(self, certificate: SnapshotCertificate) -> None:
        set_time(self.began_s + self.unix_s() - START_S)
        indices: dict[str, int] = {v.vote_key.address: v.history_index for v in self.chain.validators}
        votes = [
            (vote.signature, indices[signer])
            for vote, signer in zip(certificate.votes, certificate.signers, strict=True)
        ]
        self.chain.tasks.post_snapshot(*certificate.snapshot.values(), votes)
        super().post(certificate)


def four_validators() -> Network:
    chain = bare_network()
    for number in range(4):
        chain.add_validator(number)
    for number in range(3):
        chain.add_provider(number)
    return chain


def test_the_contract_takes_the_epochs_on_which_validators_agree() -> None:
    with rolled_back():
        chain = four_validators()
        network = ContractNetwork(chain)
        network.start()
        assert network.run_until_posted(1)
        network.mine(providers=network.providers[:2])
        assert network.run_until_posted(2)
        assert chain.tasks.latest_epoch() == 2
        for record in network.posted:
            root, count, _ = chain.tasks.snapshot_of(record.epoch)
            assert ("0x" + root.hex(), count) == (record.root, record.count)
        assert [record.count for record in network.posted] == [3, 2]


def test_two_votes_that_a_validator_saw_are_enough_to_slash() -> None:
    with rolled_back():
        chain = four_validators()
        network = ContractNetwork(chain)
        liar = network.members[0]

        def twice(sender: Member, receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
            if sender is liar and isinstance(message, SignedSnapshot):
                other = replace(message.snapshot, root=bytes([5] * 32))
                network.filter = lambda _sender, _receiver, message: message
                signature = liar.key.sign(message_digest(network.domain, other))
                network.send(liar, receiver, SignedSnapshot(other, signature))
            return message

        network.start()
        network.filter = twice
        network.run_until_posted(1)
        network.run(200)
        fault = next(fault for member in network.members for fault in member.faults)
        operator = next(v.operator for v in chain.validators if v.vote_key.address == fault.signer).address
        proven = snapshot_double_sign(fault, version=chain.stakes.version(), history_index=0)
        chain.dispute.prove_double_sign(*proven.arguments)
        assert chain.stakes.validator_of(operator)[1] == MIN_STAKE - MIN_STAKE // 20

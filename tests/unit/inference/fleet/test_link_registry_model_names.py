"""A node joins with its server's ids; the table, its load and the welcome speak of the network's names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from sparewatt.core.ids import AccountId, KeyId
from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.link import handshake
from sparewatt.protocol.link.frames import (
    MODELS_NAMED_MAX,
    AssignedName,
    Hello,
    ModelNames,
    Opcode,
    decode_frames,
    decode_message,
    encode_message,
)
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.fleet.test_link_registry import Registry, Visit, closing, receive_op
from tests.unit.inference.nodes import a_model, node_id, some_specs

FILE = "SmolLM2-135M-Instruct.Q4_1"
FILE_BYTES = 98_362_432


def a_file(**changes: object) -> ModelReport:
    return a_model(**({"id": FILE, "weights_bytes": FILE_BYTES} | changes))


SPECS = some_specs(a_file())


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with closing(Registry()) as registry:
        yield registry


async def names_told(visit: Visit) -> ModelNames:
    return decode_message(await receive_op(visit.socket, Opcode.NAMES), ModelNames)


def models(registry: Registry) -> set[str]:
    return registry.table.model_ids()


async def test_the_file_of_another_machine_is_the_model_of_the_local_network(registry: Registry) -> None:
    visit = await registry.joined(specs=SPECS)
    assert (await names_told(visit)).models == (AssignedName("smollm2-135m", FILE),)
    await registry.joined(seed=2, specs=some_specs(a_file(id="smollm2-135m"), name="cellar"))
    assert models(registry) == {"smollm2-135m"}
    (model,) = registry.row(visit).specs.models
    assert (model.served_as, model.quantization) == (FILE, "Q4_1")


async def test_later_reports_and_load_are_named_as_well(registry: Registry) -> None:
    visit = await registry.joined(specs=SPECS)
    registry.on_specs(visit.key.address, some_specs(a_file(id="smollm2:135m")))
    registry.on_load(visit.key.address, NodeLoad(foreign=1, foreign_models=("smollm2:135m",)))
    row = registry.row(visit)
    assert list(row.models) == ["smollm2-135m"]
    assert row.load.foreign_models == ("smollm2-135m",)
    assert row.active_bytes == FILE_BYTES


async def test_a_node_of_an_earlier_run_is_remembered_by_the_network_s_names(registry: Registry) -> None:
    registry.remember(node_id(7), AccountId("acc_owner"), SPECS, last_seen_unix_s=1.0)
    row = registry.table.get(node_id(7))
    assert row is not None
    assert (list(row.models), row.owner) == (["smollm2-135m"], "acc_owner")


async def test_an_alias_renames_the_models_of_all_nodes_and_its_end_takes_it_back(registry: Registry) -> None:
    visit = await registry.joined(specs=some_specs(a_file(id="ours")))
    registry.changed.clear()
    registry.set_aliases({"ours": "smollm2-135m"})
    assert models(registry) == {"smollm2-135m"}
    assert registry.changed == {visit.key.address}
    registry.set_aliases({})
    assert models(registry) == {"ours"}
    assert registry.row(visit).specs.models[0].served_as is None


async def test_what_one_node_reports_may_name_another_s_model(registry: Registry) -> None:
    """Both belong to one owner, whose word about a digest holds for all his nodes."""
    await registry.joined(specs=some_specs(a_file(id="ours", weights_digest="sha256:1")))
    assert models(registry) == {"ours"}
    await registry.joined(seed=2, specs=some_specs(a_file(weights_digest="sha256:1"), name="cellar"))
    assert models(registry) == {"smollm2-135m"}


async def test_a_name_that_the_size_contradicts_is_explained_to_the_node(registry: Registry) -> None:
    visit = await registry.joined(specs=some_specs(a_file(id="llama3.1:70b")))
    (model,) = (await names_told(visit)).models
    assert model.name == "unverified/llama3.1:70b"
    assert model.why is not None
    assert "llama-3.1-70b has 70.6" in model.why


async def test_a_node_is_told_what_is_asked_for() -> None:
    demand = UnmetDemand(clock=ManualClock())
    demand.note("qwen3-8b", KeyId("key_1"))
    async with closing(Registry(demand=demand)) as registry:
        visit = await registry.joined(specs=some_specs(a_file(), models=()))
        assert await names_told(visit) == ModelNames((), ("qwen3-8b",))


async def test_names_are_told_when_they_change_and_at_no_other_time(registry: Registry) -> None:
    visit = await registry.joined(specs=SPECS)
    await names_told(visit)
    registry.on_specs(visit.key.address, some_specs(a_file(state="on_disk")))
    registry.on_specs(visit.key.address, some_specs(a_file(id="ours")))
    assert (await names_told(visit)).models == (AssignedName("ours", "ours"),)
    registry.set_aliases({"ours": "smollm2-135m"})
    assert (await names_told(visit)).models == (AssignedName("smollm2-135m", "ours"),)


async def test_an_older_node_is_told_nothing_that_it_does_not_know(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(op: Opcode, message: msgspec.Struct) -> bytes:
        is_hello = isinstance(message, Hello)
        return encode_message(op, msgspec.structs.replace(message, takes_names=False) if is_hello else message)

    monkeypatch.setattr(handshake, "encode_message", as_before)
    visit = await registry.joined(specs=SPECS)
    registry.say_goodbye("the end")
    heard: list[Opcode] = []
    while Opcode.GOODBYE not in heard:
        heard += [frame.op for frame in decode_frames(await visit.socket.receive())]
    assert Opcode.NAMES not in heard


async def test_the_longest_names_of_the_most_models_fit_into_one_message(registry: Registry) -> None:
    reports = [a_file(id=f"{n:03}{'🦙' * 235}-70b.Q4_0.gguf") for n in range(MODELS_PER_NODE_MAX)]
    visit = await registry.joined(specs=some_specs())
    registry.on_specs(visit.key.address, some_specs(*reports))
    await names_told(visit)
    told = await names_told(visit)
    assert len(told.models) == MODELS_NAMED_MAX
    assert all(model.why is not None for model in told.models)


async def test_an_owner_is_told_what_a_price_keeps_from_the_node_and_when_that_ends() -> None:
    notices = {"smollm2-135m": "too dear"}
    async with closing(Registry(price_notice=lambda model: notices.get(model.id))) as registry:
        visit = await registry.joined(specs=SPECS)
        assert (await names_told(visit)).models == (AssignedName("smollm2-135m", FILE, price_notice="too dear"),)
        await registry.tell_price_notices()
        notices.clear()
        await registry.tell_price_notices()
        assert (await names_told(visit)).models == (AssignedName("smollm2-135m", FILE),), "nothing in between"

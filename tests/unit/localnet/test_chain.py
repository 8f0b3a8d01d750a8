"""The chain of a local network: which one is planned, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

from sparewatt.core.rng import seeded
from sparewatt.localnet.chain import LocalChain, plan_chain
from sparewatt.localnet.setup_commands import SetupRunner
from sparewatt.machine.children import Supervisor
from sparewatt.testing.clocks import InstantClock


def test_an_external_chain_is_used_and_none_is_wanted_with_no_chain() -> None:
    external = plan_chain(chain_url="https://rpc.example", no_chain=False)
    assert external is not None
    assert (external.url, external.port) == ("https://rpc.example", None)
    assert plan_chain(chain_url="https://rpc.example", no_chain=True) is None


async def test_a_network_that_wants_no_chain_is_told_what_is_off(tmp_path: Path) -> None:
    lines: list[str] = []
    clock, rng = InstantClock(), seeded(1)
    async with Supervisor(clock=clock, rng=rng, on_exit=lambda _: None) as children:
        chain = LocalChain(
            plan=plan_chain(chain_url=None, no_chain=True),
            data=tmp_path,
            dsn="",
            children=children,
            setup=None,
            setups=SetupRunner(),
            clock=clock,
            rng=rng,
            notify=lines.append,
        )
        async with chain.in_background() as starting:
            assert await starting is None
    assert lines == ["No chain (--no-chain): answers and credits work; leases, and payouts on a chain, are off."]
    assert not chain.folder.exists()

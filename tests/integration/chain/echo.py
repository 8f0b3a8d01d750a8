"""Two contracts small enough to be written by hand. `ECHO` logs what it is told, under any topic; `REFUSER` undoes the
transaction and returns what it was told. With them a test can have any event and any reason it likes.
"""

from __future__ import annotations

from eth_abi.abi import encode

from sparewatt.chain.contracts import DeploymentStep
from sparewatt.evm.contract_abi import AbiEntry, AbiParam, Artifact
from sparewatt.evm.model import ContractCall
from sparewatt.protocol.signing import keccak256

_ECHO = bytes.fromhex("6020360360206000376000356020360360" + "00a100")
_REFUSER = bytes.fromhex("3660006000373660" + "00fd")
NOTED = AbiEntry(type="event", name="Noted", inputs=(AbiParam(type="uint256", name="number"),))


def _creation(runtime: bytes) -> str:
    """Copies what follows it to memory and returns it."""
    return f"0x60{len(runtime):02x}80600b6000396000f3{runtime.hex()}"


ARTIFACTS = {
    "echo": Artifact(abi=(NOTED,), bytecode=_creation(_ECHO)),
    "refuser": Artifact(abi=(), bytecode=_creation(_REFUSER)),
}
PLAN = [DeploymentStep(create="echo"), DeploymentStep(create="refuser")]


def noted(echo: str, number: int) -> ContractCall:
    """A call after which the echo has logged Noted(number)."""
    return ContractCall(echo, NOTED.signature_hash() + number.to_bytes(32, "big"))


def refusal(refuser: str, reason: str) -> ContractCall:
    return ContractCall(refuser, keccak256(b"Error(string)")[:4] + encode(["string"], [reason]))

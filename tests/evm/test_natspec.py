"""Every external function of the contracts has NatSpec: wallets and block explorers show it to those who sign."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import vyper.ast as vy_ast
from vyper.ast.nodes import FunctionDef

CONTRACTS = Path(__file__).resolve().parents[2] / "contracts"
SOURCES = sorted(CONTRACTS.rglob("*.vy"))
ENTRY_POINTS = {"external", "deploy"}


def external_functions(path: Path) -> list[FunctionDef]:
    functions = vy_ast.parse_to_ast(path.read_text()).get_children(FunctionDef)
    return [node for node in functions if ENTRY_POINTS & {decorator.id for decorator in node.decorator_list}]


def faults(function: FunctionDef) -> list[str]:
    """What the NatSpec of one function lacks. Vyper itself refuses a `@param` that is no parameter."""
    text = function.doc_string.value if function.doc_string else ""
    parameters = [argument.arg for argument in function.args.args]
    return [
        *(["no @notice"] if "@notice" not in text else []),
        *(f"no @param {name}" for name in parameters if not re.search(rf"@param {name} \S", text)),
        *(["no @return"] if function.returns is not None and not re.search(r"@return \S", text) else []),
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_external_function_says_what_it_takes_and_returns(path: Path) -> None:
    assert {node.name: faults(node) for node in external_functions(path) if faults(node)} == {}


def test_external_functions_are_recognised() -> None:
    assert sum(len(external_functions(path)) for path in SOURCES) > 100


def test_a_function_without_natspec_is_a_fault() -> None:
    source = '@external\ndef pay(amount: uint256) -> bool:\n    """@notice Pay."""\n    return True\n'
    (function,) = vy_ast.parse_to_ast(source).get_children(FunctionDef)
    assert faults(function) == ["no @param amount", "no @return"]

"""The reference pages name every error code, setting and metric that the code declares, and nothing else.

What exists is found by introspection: subclasses, fields of settings, options of commands, constants in the source.
A new one fails here until it has its row.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import click
import msgspec.inspect
import pytest

from sparewatt.accounts.join_tokens import _REFUSALS as TOKEN_VERDICTS
from sparewatt.chain.settings import ChainSettings
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.main import cli
from sparewatt.core.errors import SparewattError
from sparewatt.core.settings import SECTIONS
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.localnet.network import UpSettings
from sparewatt.machine.lifeline import EXIT_ORPHANED
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.api.lease_match import (
    AuctionPhase,
    LeaseMatch,
    MatchBidState,
    MatchCertificate,
    MatchCounts,
    MatchScore,
    MatchVote,
    MatchVoter,
)
from sparewatt.protocol.link.frames import FailCode
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.prometheus import Metric
from sparewatt.testing.__main__ import main as engine
from sparewatt.validator.settings import ValidatorSettings

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/reference"
SOURCE = ROOT / "src/sparewatt"
SETTINGS: dict[str, tuple[type, str]] = {
    "gateway": (GatewaySettings, "gateway run"),
    "node": (NodeSettings, "node join"),
    "chain": (ChainSettings, "chain run"),
    "up": (UpSettings, "up"),
    "validator": (ValidatorSettings, "validator run"),
}
ALWAYS_FROM_COMMAND = {
    *(("node", "gateway_url"), ("chain", "chain_url"), ("chain", "data")),
    *(("validator", "data"), ("validator", "chain_url"), ("validator", "contracts")),
}
"""The command line always passes these, so a variable of the section or the file cannot set them."""
VALUES: dict[type, str] = {
    msgspec.inspect.BoolType: "`true`, `false`",
    msgspec.inspect.IntType: "whole number",
    msgspec.inspect.StrType: "text",
}
READ_BY_LIBRARIES = {"SSL_CERT_FILE"}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    heading: str
    cells: dict[str, str]
    """By the title of the column."""

    @property
    def name(self) -> str:
        """What the row explains: its first cell."""
        return next(iter(self.cells.values())).strip("`")


# the pages


@cache
def page(name: str) -> str:
    """Without its blocks of code, whose fences would pair up with inline code."""
    return re.sub(r"^```.*?^```$", "", (PAGES / name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def rows(name: str, first_column: str) -> Iterator[Row]:
    """The rows of all tables whose first column has this title."""
    heading, header = "", tuple[str, ...]()
    for line in page(name).splitlines():
        if line.startswith("#"):
            heading = line
        if not line.startswith("|"):
            header = ()
            continue
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        if not header:
            header = cells
        elif header[0] == first_column and not set(cells[0]) <= {"-"}:
            yield Row(heading, dict(zip(header, cells, strict=True)))


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def assert_same(documented: Iterable[str], declared: Iterable[str]) -> None:
    listed, known = list(documented), set(declared)
    assert len(listed) == len(set(listed)), "a row occurs twice"
    assert {"missing": known - set(listed), "gone": set(listed) - known} == {"missing": set(), "gone": set()}


# the code


@cache
def source() -> dict[str, list[ast.AST]]:
    """The nodes of every module's syntax tree, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return found


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """All calls in the source, with the last part of what is called."""
    return [
        (node.func.id if isinstance(node.func, ast.Name) else node.func.attr, node)
        for nodes in source().values()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    ]


def text_of(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def subclasses(of: type[SparewattError]) -> Iterator[type[SparewattError]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def import_errors() -> None:
    """Import each module that defines a class of the tree, and no other: all of them would take many seconds."""
    classes = [(name, node) for name, nodes in source().items() for node in nodes if isinstance(node, ast.ClassDef)]
    known, found = {SparewattError.__name__}, list(classes)
    while found:
        found = [(name, node) for name, node in classes if node.name not in known and names_in(node.bases) & known]
        for name, node in found:
            known.add(node.name)
            importlib.import_module(name)


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


@cache
def errors() -> list[type[SparewattError]]:
    """Those that somebody can meet: leaves, and inner classes that are raised themselves. Not those of test fakes."""
    import_errors()
    shipped = [each for each in subclasses(SparewattError) if re.match(r"sparewatt\.(?!testing)", each.__module__)]
    inner = {base for each in shipped for base in each.__bases__}
    called = {name for name, _ in calls()}
    return [each for each in shipped if each not in inner or each.__name__ in called]


def command(path: str) -> click.Command:
    found: click.Command | None = cli
    for word in path.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found is not None
    return found


def flags_of(param: click.Parameter) -> list[str]:
    return [param.metavar or ""] if isinstance(param, click.Argument) else [*param.opts, *param.secondary_opts]


def number(value: float) -> str:
    """With separators where it is long; a port has none."""
    return f"{value:,.10g}" if value >= 100_000 else f"{value:.10g}"


def values_of(kind: msgspec.inspect.Type) -> str:
    """The column `values` for a setting's type."""
    match kind:
        case msgspec.inspect.UnionType():
            return values_of(next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)))
        case msgspec.inspect.LiteralType():
            return ", ".join(f"`{value}`" for value in kind.values)
        case msgspec.inspect.CustomType() if kind.cls is Path:
            return "path"
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType() if kind.le is not None:
            least = f"above {kind.gt}, up to" if kind.gt is not None else f"{kind.ge} to"
            return f"{least} {number(kind.le)}"
    return VALUES[type(kind)]


def default_of(field: msgspec.inspect.Field) -> str:
    """The column `default`."""
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return number(value)
        case Path():
            return f"`{str(value).replace(str(Path.home()), '~')}`"
    return f"`{value}`"


def fields_of(section: str) -> tuple[msgspec.inspect.Field, ...]:
    kind = msgspec.inspect.type_info(SETTINGS[section][0])
    assert isinstance(kind, msgspec.inspect.DataclassType)
    return kind.fields


def variable(section: str, name: str) -> str:
    return f"SPAREWATT_{section}_{name}".upper()


# errors


def test_every_error_code_has_a_row_with_its_status_type_and_retry() -> None:
    met = [each for each in errors() if not issubclass(each, CliError)]
    documented = [row for row in rows("errors.md", "code") if "status" in row.cells]
    assert_same((row.name for row in documented), (each.code for each in met))
    for row in documented:
        facts = {
            (str(each.status), f"`{each.kind}`", "yes" if each.retryable else "no")
            for each in met
            if each.code == row.name
        }
        assert facts == {(row.cells["status"], row.cells["type"], row.cells["retry"])}, row.name


def test_every_code_and_exit_code_of_the_command_line_has_a_row() -> None:
    dicts = [node for node in source()["sparewatt.cli.main"] if isinstance(node, ast.Dict)]
    pairs = [
        (text_of(key), text_of(value)) for node in dicts for key, value in zip(node.keys, node.values, strict=True)
    ]
    own = {value for key, value in pairs if key == "code" and value} | {CliError.code}
    assert_same((row.name for row in rows("errors.md", "code") if "status" not in row.cells), own)
    documented = {row.name: row.cells["name"].strip("`") for row in rows("errors.md", "exit code")}
    assert documented == {str(each.value): each.name for each in ExitCode} | {str(EXIT_ORPHANED): "ORPHANED"}


def test_every_reason_of_a_refused_join_and_of_a_failed_job_has_a_row() -> None:
    keywords = [word for name, call in calls() if name in {"JoinRefused", "_reject"} for word in call.keywords]
    reasons = {text for word in keywords if word.arg == "reason" and (text := text_of(word.value))}
    assert_same(
        (row.name for row in rows("errors.md", "reason")), reasons | {f"token_{verdict}" for verdict in TOKEN_VERDICTS}
    )
    assert_same((row.name for row in rows("errors.md", "job failure")), get_args(FailCode))


# settings


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_row_as_it_is_declared(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    flags = {param.name: flags_of(param) for param in command(SETTINGS[section][1]).params}
    documented = [row for row in rows("settings.md", "setting") if f"`[{section}]`" in row.heading]
    fields = fields_of(section)
    assert_same((row.name for row in documented), (field.name for field in fields))
    for row, field in zip(documented, fields, strict=True):
        assert row.name == field.name, "the order of the declarations"
        assert (row.cells["default"], row.cells["values"]) == (default_of(field), values_of(field.type)), field.name
        assert ticked(row.cells["flag"]) == flags.get(field.name, []), field.name
        can_be_set = (section, field.name) not in ALWAYS_FROM_COMMAND
        assert (variable(section, field.name) in ticked(row.cells["environment variable"])) == can_be_set, field.name
        assert row.cells["meaning"], field.name


def test_every_option_of_a_process_is_on_the_page_and_no_other() -> None:
    processes = [*(command(path) for _, path in SETTINGS.values()), engine]
    known = {flag for process in processes for param in process.params for flag in flags_of(param)}
    options = {flag for flag in known if flag.startswith("--")} - {"--help"}
    assert_same(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page("settings.md"))), options)


def test_every_option_of_the_engine_has_a_row() -> None:
    documented = {row.name: row for row in rows("settings.md", "option")}
    assert_same(documented, (param.opts[0] for param in engine.params))
    for param in engine.params:
        assert ticked(documented[param.opts[0]].cells["environment variable"]) == [variable("engine", param.name or "")]


def test_every_timeout_of_the_http_edge_has_a_row_with_its_value() -> None:
    documented = {row.name: row.cells["seconds"] for row in rows("settings.md", "timeout")}
    assert documented == {field.name: f"{field.default:g}" for field in dataclasses.fields(ClientTimeouts)}


def test_every_environment_variable_that_is_read_is_on_the_page_and_no_other() -> None:
    texts = {text for nodes in source().values() for node in nodes if (text := text_of(node))}
    read = {text for text in texts if re.fullmatch(r"SPAREWATT_[A-Z_]+", text)} - {"SPAREWATT_ENGINE"}
    for name, call in calls():
        owner = ast.unparse(call.func).split(".")[-2:-1]
        if name in {"get", "pop"} and owner in (["env"], ["environ"]) and call.args and (text := text_of(call.args[0])):
            read.add(text)
    for section in SETTINGS:
        read |= {variable(section, field.name) for field in fields_of(section)}
    read -= {variable(section, name) for section, name in ALWAYS_FROM_COMMAND}
    read |= {variable("engine", param.name or "") for param in engine.params} | READ_BY_LIBRARIES
    documented = {text for text in ticked(page("settings.md")) if re.fullmatch(r"[A-Z][A-Z_]*[A-Z]", text)}
    assert_same(documented - {"URL", "DE"}, read)


# metrics


def test_every_metric_has_a_row_with_its_kind_and_none_is_gone() -> None:
    declared = {metric.name: metric.kind for metric in vars(names).values() if isinstance(metric, Metric)}
    documented: dict[str, str] = {}
    for row in rows("metrics.md", "name"):
        assert not set(ticked(row.cells["name"])) & set(documented), "a metric occurs twice"
        documented |= dict.fromkeys(ticked(row.cells["name"]), row.cells["kind"])
    assert documented == declared
    mentioned = re.findall(r"\b(?:sparewatt|process|python)_[a-z0-9_]+\b", page("metrics.md"))
    assert set(mentioned) <= set(declared)


# invariants of the match


def test_every_invariant_of_the_match_names_tests_that_exist() -> None:
    section = page("match.md").partition("## The invariants")[2]
    found = [row.split("|")[1:4] for row in section.splitlines() if row.startswith("| I")]
    assert [number.strip() for number, _, _ in found] == [f"I{number}" for number in range(1, 26)]
    for number, _, tests in found:
        named = re.findall(r"`(\w+)` in \[\w+\.py\]\(\.\./\.\./(tests/[\w/]+\.py)\)", tests)
        assert len(named) == tests.count("`") // 2 >= 2, number
        for name, path in named:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{number}: {name} is not in {path}"


# replies


def test_every_member_of_a_match_has_its_row() -> None:
    documented = [name for row in rows("market.md", "in the reply") for name in ticked(next(iter(row.cells.values())))]
    members = set(LeaseMatch.__struct_fields__) - {"object"}
    assert_same(documented, members | {"bids[].score"})


@pytest.mark.parametrize("kind", [AuctionPhase, MatchCounts, MatchScore, MatchVote, MatchVoter, MatchCertificate])
def test_every_part_of_a_match_is_named(kind: type[msgspec.Struct]) -> None:
    named = {name for row in rows("market.md", "in the reply") for cell in row.cells.values() for name in ticked(cell)}
    assert set(kind.__struct_fields__) <= named


def test_every_state_of_a_bid_is_named() -> None:
    said = next(line for line in page("market.md").splitlines() if line.startswith("A bid is `"))
    assert ticked(said) == list(get_args(MatchBidState))

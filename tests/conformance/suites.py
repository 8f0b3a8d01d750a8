"""Suites that others wrote, run against a network: what each needs, how it is started, how it is read.

Each has an environment of its own, made from a lock file with hashes, and nothing of ours in it but a small plugin.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.clients.installing import PIP, once, python_from_lock, run_command
from tests.integration.networks import Network

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SUITE_S = 600.0
ALIASES = ("gpt-6-astra", "gpt-3.5-turbo-instruct", "text-embedding-3-small", "model")
"""Names that the suites ask for."""

ENV = {
    "SPAREWATT_ENGINE_ALIASES": " ".join(ALIASES),
    "SPAREWATT_ENGINE_ANSWER_TOKENS": "12",  # else up to 200, at 120 a second: most of the suites' time
    "SPAREWATT_GATEWAY_REQUESTS_PER_MIN": "1000000",
    "SPAREWATT_GATEWAY_TOKENS_PER_MIN": "1000000000",
    "SPAREWATT_GATEWAY_ADDRESS_REQUESTS_PER_MIN": "1000000",
    "SPAREWATT_GATEWAY_ADDRESS_TOKENS_PER_MIN": "1000000000",
}
"""Of the network that they are run against."""

_COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|errors?)")
_CASES = re.compile(r"(\d+) generated")


@dataclass(frozen=True, slots=True)
class Result:
    suite: str
    version: str
    ok: bool
    counts: Mapping[str, int]
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    package: str
    """Whose version is told, from the lock file."""
    command: Callable[[Network, Path], tuple[list[str], Path]]
    """What to run, and where, given the environment's interpreter."""
    env: Callable[[Network], dict[str, str]]
    count: Callable[[str], dict[str, int]]
    like: str | None = None
    """The suite whose environment, and list of what is not run, it shares."""

    @property
    def lock(self) -> Path:
        return HERE / f"{self.like or self.name}.lock"

    @property
    def version(self) -> str:
        found = re.search(rf"^{re.escape(self.package)}(?:\[\w+\])?==(\S+)", self.lock.read_text(), re.MULTILINE)
        assert found, f"{self.package} is not in {self.lock.name}"
        return found[1]

    def python(self) -> Path:
        """The interpreter of its environment, which is made if it is not there."""
        return python_from_lock(self.lock, ROOT / f".venv-suite-{self.lock.stem}")

    def run(self, network: Network) -> Result:
        argv, folder = self.command(network, self.python())
        env = {**os.environ, **self.env(network), "SUITE_API_KEY": network.api_key, "PYTHONPATH": str(HERE)}
        env |= {"SUITE_DESELECTED": json.dumps([each for _, tests in deselected(self.lock.stem) for each in tests])}
        began_s = time.monotonic()
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=SUITE_S, check=False)
        output = done.stdout + done.stderr
        return Result(
            self.name, self.version, done.returncode == 0, self.count(output), time.monotonic() - began_s, output
        )


def deselected(suite: str) -> list[tuple[str, list[str]]]:
    """Reasons, and what is not run for each."""
    listed = tomllib.loads((HERE / "deselected.toml").read_text()).get(suite, [])
    return [(each["reason"], each["tests"]) for each in listed]


def _pytest_counts(output: str) -> dict[str, int]:
    last = next((line for line in reversed(output.splitlines()) if _COUNT.search(line)), "")
    return {name: int(count) for count, name in _COUNT.findall(last)}


# openai-python

OPENAI_FILES = (
    *("chat/test_completions", "test_completions", "test_embeddings", "test_models"),
    *("test_responses", "responses/test_input_items", "responses/test_input_tokens"),
    *("chat/completions/test_messages", "test_conversations", "conversations/test_items"),
)
"""Of its tests, those of the routes that there are."""


def _openai(_: Network, python: Path) -> tuple[list[str], Path]:
    source = openai_source()
    tests = [f"tests/api_resources/{name}.py" for name in OPENAI_FILES]
    return [str(python), *PYTEST, "-p", "openai_responses", "-o", "addopts=--tb=short", *tests], source


def openai_source() -> Path:
    """The source distribution of the version in the lock, unpacked: its tests are in no wheel."""
    lock, home = HERE / "openai.lock", ROOT / ".venv-suite-openai" / "source"
    name = f"openai-{OPENAI.version}"

    def fetch() -> None:
        line = re.search(r"^openai\S*==.*?(?=^\S)", lock.read_text(), re.MULTILINE | re.DOTALL)
        assert line
        home.mkdir(parents=True, exist_ok=True)
        (home / "source.lock").write_text(line[0].replace("openai[aiohttp]", "openai"))
        pip = [sys.executable, *PIP[:-2], "download", "--quiet"]
        from_source = ["--no-deps", "--no-binary=openai", "--no-build-isolation", "--require-hashes"]
        run_command(*pip, *from_source, "-r", str(home / "source.lock"), "-d", str(home))
        with tarfile.open(home / f"{name}.tar.gz") as archive:
            archive.extractall(home, filter="data")

    once(fetch, stamp=home / ".fetched", inputs=[lock])
    return home / name


PYTEST = ("-m", "pytest", "-p", "steering", "-q", "-p", "no:cacheprovider")

OPENAI = Suite(
    "openai",
    "openai",
    _openai,
    lambda network: {"TEST_API_BASE_URL": network.base_url},
    _pytest_counts,
)

# LangChain


def _langchain(_: Network, python: Path) -> tuple[list[str], Path]:
    alone = ["-c", os.devnull, "--rootdir", str(HERE), "--confcutdir", str(HERE)]
    loops = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session"]
    return [str(python), *PYTEST, *alone, *loops, "--tb=short", "langchain_chat.py"], HERE


LANGCHAIN = Suite(
    "langchain",
    "langchain-tests",
    _langchain,
    lambda network: {"SUITE_BASE_URL": network.base_url, "SUITE_MODEL": network.model},
    _pytest_counts,
)

LANGCHAIN_RESPONSES = replace(
    LANGCHAIN,
    name="langchain-responses",
    env=lambda network: {**LANGCHAIN.env(network), "SUITE_USE_RESPONSES": "1"},
    like=LANGCHAIN.name,
)
"""The same tests, with the client told to use `/v1/responses`."""


# LiteLLM


def _litellm(_: Network, python: Path) -> tuple[list[str], Path]:
    alone = ["-c", os.devnull, "--rootdir", str(HERE), "--confcutdir", str(HERE)]
    return [str(python), *PYTEST, *alone, "--tb=short", "litellm_clients.py"], HERE


LITELLM = Suite("litellm", "litellm", _litellm, LANGCHAIN.env, _pytest_counts)
"""Library and proxy: the library alone has 336 MB, which is why it is not among the clients that `make test` runs."""


# schemathesis

OPENAI_SPEC = ROOT / "tests" / "openai_spec" / "openai.json"


def schemathesis_openai(max_examples: int) -> Suite:
    """OpenAI's own document of the routes that there are, cut down, in place of ours: no server error on any request
    that it describes. Replies are checked against it in tests/openai_spec, where the exceptions are known."""

    def command(network: Network, python: Path) -> tuple[list[str], Path]:
        argv, folder = schemathesis(max_examples).command(network, python)
        ours = f"{network.root_url}/openapi.json"
        theirs = [str(OPENAI_SPEC), f"--url={network.base_url}"]
        kept = [each for each in argv if not each.startswith(("--exclude-path", "--checks"))]
        at = kept.index(ours)
        return [*kept[:at], *theirs, *kept[at + 1 :], "--checks=not_a_server_error"], folder

    return replace(schemathesis(max_examples), name="schemathesis-openai", command=command, like="schemathesis")


def schemathesis(max_examples: int, phases: str = "examples,coverage,fuzzing") -> Suite:
    """All routes of our own document. The only server errors allowed are those that it declares as such.

    One worker: with threads, Python 3.11 sometimes fails to parse its own source (SystemError in `ast`).
    """

    def command(network: Network, python: Path) -> tuple[list[str], Path]:
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        st = [str(python.parent / "st"), f"--config-file={HERE / 'schemathesis.toml'}", "run"]
        what = [f"{network.root_url}/openapi.json", f"--header=authorization: Bearer {network.api_key}"]
        how = [f"--phases={phases}", f"--max-examples={max_examples}", f"--checks={checks}", "--workers=1"]
        bounds = ["--request-timeout=30", "--continue-on-failure", "--warnings=off", "--seed=1", "--no-color"]
        return [
            *st,
            *what,
            "--exclude-path=/link/v1",
            *how,
            *bounds,
        ], ROOT / ".venv-suite-schemathesis"

    return Suite("schemathesis", "schemathesis", command, lambda _: {}, _schemathesis_counts)


def _schemathesis_counts(output: str) -> dict[str, int]:
    found = _CASES.search(output)
    failures = re.search(r"(\d+) failures? in", output)
    return {"passed": int(found[1]) if found else 0, "failed": int(failures[1]) if failures else 0}

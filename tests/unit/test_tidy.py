"""The tree stays easy to see into: names, sizes, documents and history keep to the rules of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "sparewatt"
DOCS = ROOT / "docs"

SHARED_NAMES: frozenset[str] = frozenset()
"""Class names that may be defined twice. Empty: find another name, or use the class that is there."""
FILE_LINES_MAX = 600
BROAD_EXCEPTS_PER_1000_LINES = 0.3
TEST_LINES_PER_CODE_LINE = 1.1
SUBJECT_CHARS_MAX = 72
SUBJECTS_SINCE = "1b8ce55"
"""Commits after this one keep the rule."""
GENERATED = {"web/src/api/schema.ts"}
CODE = {".py", ".vy", ".ts", ".tsx", ".css", ".sql", ".c"}


@cache
def tracked() -> tuple[str, ...]:
    """The paths of all files in git, or in the folder itself where it is no checkout."""
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    paths = found.stdout.split("\n") if found.returncode == 0 else []
    return tuple(path for path in paths if path and (ROOT / path).exists())


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def public_classes() -> Iterator[tuple[str, Path]]:
    """By the text: a class of a module begins its line."""
    for path in python_files(SRC):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            yield name, path.relative_to(SRC)


# code


def test_a_public_class_name_has_one_definition() -> None:
    homes = defaultdict(list)
    for name, path in public_classes():
        homes[name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in SHARED_NAMES} == {}


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    code = [path for path in tracked() if Path(path).suffix in CODE and path not in GENERATED]
    sizes = {path: len((ROOT / path).read_text().splitlines()) for path in code}
    assert {path: size for path, size in sizes.items() if size > FILE_LINES_MAX} == {}


def broad_excepts(tree: ast.AST) -> int:
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    broad = ("Exception", "BaseException")
    return sum(each.type is None or (isinstance(each.type, ast.Name) and each.type.id in broad) for each in handlers)


def test_broad_excepts_are_rare() -> None:
    files = python_files(SRC)
    may_be_broad = re.compile(r"except\s*(:|\(?(Base)?Exception)")
    found = sum(broad_excepts(ast.parse(text)) for path in files if may_be_broad.search(text := path.read_text()))
    assert found > 0
    assert found <= BROAD_EXCEPTS_PER_1000_LINES * lines_of(files) / 1000


# tests


def test_tests_are_no_thinner_than_the_code() -> None:
    assert lines_of(python_files(ROOT / "tests")) >= TEST_LINES_PER_CODE_LINE * lines_of(python_files(SRC))


def names_in(folder: Path) -> set[str]:
    """Modules and packages of one folder."""
    modules = {path.stem.strip("_") for path in folder.glob("*.py")}
    return modules | {path.parent.name for path in folder.glob("*/*.py")}


@pytest.mark.parametrize(("tests", "code"), [("tests/unit", SRC), ("tests/unit/bench", ROOT / "bench")])
def test_unit_tests_mirror_the_code(tests: str, code: Path) -> None:
    """`tests/unit/a/b/test_c_aspect.py` tests `a/b/c.py`, or the package `a/b/c/`."""
    stray = []
    for path in sorted((ROOT / tests).rglob("test_*.py")):
        folder, name = path.parent.relative_to(ROOT / tests), path.stem.removeprefix("test_")
        if path.parent == ROOT / "tests" / "unit" or (folder.parts[:1] == ("bench",) and code == SRC):
            continue
        if not any(name == known or name.startswith(f"{known}_") for known in names_in(code / folder)):
            stray.append(str(path.relative_to(ROOT)))
    assert stray == []


# documents


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MENTION = re.compile(r"`([\w./-]+\.(?:py|vy|tsx?|md|toml|sql|json|yaml))`")
"""A file's name in backquotes."""


def documents() -> list[Path]:
    return [ROOT / path for path in tracked() if path.endswith(".md") and "node_modules" not in path]


def test_every_link_between_documents_leads_somewhere() -> None:
    links = [(document, target) for document in documents() for target in LINK.findall(document.read_text())]
    local = [(document, target) for document, target in links if "://" not in target and "mailto:" not in target]
    assert [f"{document}: {target}" for document, target in local if not (document.parent / target).exists()] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    paths = {*tracked(), *(path.removeprefix("src/sparewatt/") for path in tracked())}
    linked = [target for target in LINK.findall(page) if target.startswith("src/")]
    assert len(linked) > 50
    assert [path for path in linked if not (ROOT / path).exists()] == []
    assert [name for name in MENTION.findall(page) if name not in paths] == []


def glossary_words() -> list[str]:
    """The first column of the first table."""
    _, _, table = (DOCS / "glossary.md").read_text().partition("| --- | --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    return [row.split("|")[1].strip() for row in rows]


@cache
def all_code() -> str:
    return "\n".join((ROOT / path).read_text() for path in tracked() if path.startswith(("src/", "contracts/"))
                     and path.endswith((".py", ".vy"))).lower()  # fmt: skip


def test_every_word_of_the_glossary_is_in_the_code() -> None:
    words, code = glossary_words(), all_code()
    assert len(words) > 50
    missing = [word for word in words if not re.search(_as_written(word), code)]
    assert missing == []


def _as_written(word: str) -> str:
    """In prose, as an identifier, or as a class name."""
    parts = re.split(r"[ -]", word.lower())
    return r"[ _-]?".join(map(re.escape, parts))


def test_every_word_of_the_glossary_has_one_meaning() -> None:
    words = [word.lower() for word in glossary_words()]
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_decisions_are_numbered_without_unexplained_gaps() -> None:
    folder = DOCS / "decisions"
    numbers = sorted(int(path.name[:4]) for path in folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text()
    missing = set(range(1, numbers[-1] + 1)) - set(numbers)
    assert len(numbers) == len(set(numbers))
    assert {number for number in missing if f"{number:04}" not in index} == set()
    assert [path.name for path in folder.glob("[0-9]*.md") if path.name not in index] == []


# history


def test_subjects_of_commits_are_short() -> None:
    log = subprocess.run(
        ["git", "log", "--format=%s", f"{SUBJECTS_SINCE}..HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if log.returncode != 0:
        pytest.skip("no history here, or not as far back")
    assert [subject for subject in log.stdout.splitlines() if len(subject) > SUBJECT_CHARS_MAX] == []

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import pytest

from sparewatt.cli import output


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


Row = Sequence[output.Cell | str]


def column(
    make: Callable[[str, Callable[[Row], output.Cell | str]], output.Column[Row]], header: str, at: int
) -> output.Column[Row]:
    return make(header, lambda row: row[at])


TABLE = [column(output.left, "NAME", 0), column(output.right, "N", 1)]
ROWS: list[Row] = [[output.Cell("[b]a[/b]", "red"), "1"], ["long name :smile:", "1,000"]]


def test_a_pipe_gets_aligned_text_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(TABLE, ROWS)
    assert capsys.readouterr().out == ("NAME                   N\n[b]a[/b]               1\nlong name :smile:  1,000\n")


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_colour_and_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(TABLE, ROWS)
    shown = capsys.readouterr().out
    assert "\x1b[31m[b]a[/b]" in shown
    assert ":smile:" in shown


@pytest.mark.usefixtures("terminal")
def test_a_marked_row_is_styled_whole_but_for_cells_with_a_style(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(TABLE, ROWS, is_marked=lambda row: row is ROWS[0])
    marked, plain = capsys.readouterr().out.splitlines()[1:]
    assert "\x1b[31m[b]a[/b]" in marked
    assert marked.count("\x1b[") > plain.count("\x1b[")


@pytest.mark.usefixtures("terminal")
def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(TABLE, ROWS)
    output.print_title("Bold")
    output.print_facts([("State", output.state_cell("online"))])
    assert "\x1b" not in capsys.readouterr().out


WIDE = [
    column(output.left, "ID", 0),
    column(output.prose, "WHY", 1),
    column(output.right, "A", 2),
    column(output.right, "B", 3),
]
WIDE_ROWS: list[Row] = [["key_" + "x" * 30, "words that may go to another line", "1,000", "2,000"]]


@pytest.mark.parametrize(
    ("columns", "left_out", "lines"), [(100, None, 2), (70, None, 3), (60, "B", 3), (55, "B, A", 3), (20, "B, A", 4)]
)
@pytest.mark.usefixtures("terminal")
def test_a_narrow_terminal_leaves_out_the_least_important_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
    left_out: str | None,
    lines: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(WIDE, WIDE_ROWS, may_drop=("B", "A"))
    shown = capsys.readouterr()
    assert "key_" + "x" * 30 in shown.out
    assert shown.err == (f"{columns} columns: left out {left_out}; --json shows all\n" if left_out else "")
    assert len(shown.out.splitlines()) == lines


def test_a_pipe_gets_every_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    output.print_table(WIDE, WIDE_ROWS, may_drop=("B", "A"))
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].split() == ["ID", "WHY", "A", "B"]
    assert shown.err == ""


@pytest.mark.usefixtures("terminal")
def test_a_column_without_a_header_is_left_out_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    columns = [column(output.left, "NAME", 0), column(output.left, "", 1)]
    output.print_table(columns, [["x", "█" * 24]], may_drop=("",))
    shown = capsys.readouterr()
    assert "█" not in shown.out
    assert shown.err == ""


@pytest.mark.usefixtures("terminal")
def test_a_fact_is_not_broken_into_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    output.print_facts([("ID", "0x" + "a" * 40)])
    assert capsys.readouterr().out == f"ID  0x{'a' * 40}\n"


@pytest.mark.usefixtures("terminal")
def test_titles_and_facts_are_styled_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_title("Models [x]")
    output.print_facts([("State", output.Cell("on", "red")), ("N", "5")])
    shown = capsys.readouterr().out
    assert "\x1b[1mModels [x]" in shown
    assert "\x1b[31m" in shown
    assert "N      5\n" in shown


def test_a_note_is_dim_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    output.note("plain")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output.note("dim")
    monkeypatch.setenv("NO_COLOR", "1")
    output.note("no colour")
    assert capsys.readouterr().err == "plain\n\x1b[2mdim\x1b[0m\nno colour\n"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (24 * 1024**3, "24.0 GiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_bytes(n_bytes: int | None, text: str) -> None:
    assert output.format_bytes(n_bytes) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"),
        ("", "-"),
        ("NaN", "-"),
        ("0", "$0"),
        ("0.4", "$0.40"),
        ("12.345", "$12.34"),
        ("1234", "$1234.00"),
        ("0.0000012", "$0.0000012"),
        ("0.00000123456", "$0.00000123"),
        (0.02, "$0.02"),
    ],
)
def test_money_shows_the_digits_that_matter(amount: str | float | None, text: str) -> None:
    assert output.format_usd(amount) == text


@pytest.mark.parametrize(
    ("per_token", "text"), [("0.00000002", "$0.02"), ("0.000015", "$15.00"), ("0", "$0"), (None, "-"), ("x", "-")]
)
def test_price_per_million_tokens(per_token: str | None, text: str) -> None:
    assert output.usd_per_mtok(per_token) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "-"), (0, "0 ms"), (0.04, "0.0 ms"), (3.21, "3.2 ms"), (12.6, "13 ms"), (1234.5, "1,234 ms")],
)
def test_milliseconds(ms: float | None, text: str) -> None:
    assert output.format_ms(ms) == text


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(-5, "just now"), (0.5, "just now"), (59, "59 s ago"), (60, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_age(age_s: float, text: str) -> None:
    assert output.ago(1000.0, now_s=1000.0 + age_s) == text


def test_age_of_what_never_was() -> None:
    assert output.ago(None, now_s=1.0) == "never"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.00001, "0.00001"),
        (0.024, "0.024"),
        (0.98765, "0.988"),
        (9.87, "9.9"),
        (99.94, "99.9"),
        (7654.3, "7,654"),
    ],
)
def test_rate(rate: float | None, text: str) -> None:
    assert output.format_rate(rate) == text


def test_a_node_is_called_by_name_else_by_the_start_of_its_id() -> None:
    assert output.node_label("0x" + "a" * 40, "berlin") == "berlin"
    assert output.node_label("0x" + "a" * 40) == "0xaaaaaaaa"
    assert output.node_label("berlin") == "berlin"

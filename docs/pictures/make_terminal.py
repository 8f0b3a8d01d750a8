"""Draw docs/pictures/terminal.svg: real commands against the network last started here, as a person sees them.

Run `make picture` while `make up` runs elsewhere.
"""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 104
SPAREWATT = Path(sys.executable).with_name("sparewatt")
PICTURE = Path(__file__).with_name("terminal.svg")


def run(*words: str) -> str:
    """What the command prints on a terminal of our width."""
    os.environ["COLUMNS"] = str(WIDTH)
    printed = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        printed.extend(data)
        return b" "  # shown nowhere

    stdout = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        try:
            pty.spawn([str(SPAREWATT), *words], read)
        finally:
            os.dup2(stdout, 1)
    return printed.decode().replace("\r\n", "\n").rstrip()


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print()
    model = run("models", "--quiet").strip()
    told = ""
    for words in (("nodes",), ("chat", model, "Say hello in one sentence.", "--max-tokens", "40")):
        told = run(*words)
        console.print(Text("$ sparewatt " + " ".join(f'"{w}"' if " " in w else w for w in words), style="bold #F2B705"))
        console.print(Text.from_ansi(told))
        console.print()
    found = re.search(r"match_\w+", told)
    if found is None:
        raise SystemExit("the answer named no match")
    console.print(Text(f"$ sparewatt match explain {found.group()}", style="bold #F2B705"))
    console.print(Text.from_ansi(run("match", "explain", found.group())))
    PICTURE.write_text(without_remote_fonts(console.export_svg(title="sparewatt")))


def without_remote_fonts(svg: str) -> str:
    """A picture that fetches nothing; the reader's own monospaced font will do."""
    svg = re.sub(r"@font-face\s*{.*?}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"\s*<!-- Generated.*?-->", "", svg)


if __name__ == "__main__":
    main()

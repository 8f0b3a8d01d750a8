"""Time from a clean clone to the first streamed token, and from a second start to an answer.

Run `make bench-start`. Clones this checkout's HEAD into a temporary folder, runs `make up` there with pip's cache off,
requests a streamed answer, stops the network with SIGINT, starts it again, and repeats. Everything is on loopback.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

REPO = Path(__file__).parents[1]
PORT = 8497
FIRST_S_MAX = 600.0
SECOND_S_MAX = 120.0


@contextmanager
def network(checkout: Path, *, ceiling_s: float) -> Iterator[dict[str, str]]:
    """`make up` until it is ready; SIGINT at the end."""
    env = {**os.environ, "PIP_NO_CACHE_DIR": "1", "XDG_STATE_HOME": str(checkout.parent)}
    argv = ["make", "up", f"ARGS=--port {PORT} --data {checkout.parent / 'data'}"]
    ready_file = checkout.parent / "data" / "ready.json"
    process = subprocess.Popen(argv, cwd=checkout, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + ceiling_s
        while not ready_file.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit("the network did not come up")
            time.sleep(0.02)
        ready: dict[str, str] = json.loads(ready_file.read_text())
        yield ready
        os.kill(int(ready["pid"]), signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def first_token(ready: dict[str, str]) -> None:
    """Request a stream and return at its first text."""
    url = urlsplit(ready["base_url"])
    body = {"model": ready["model"], "stream": True, "messages": [{"role": "user", "content": "Say hello."}]}
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    headers = {"authorization": f"Bearer {ready['api_key']}"}
    connection.request("POST", "/v1/chat/completions", body=json.dumps(body), headers=headers)
    for line in connection.getresponse():
        if b'"content":"' in line:
            connection.close()
            return
    raise SystemExit("no token came")


def timed(checkout: Path, *, ceiling_s: float, began_s: float) -> float:
    with network(checkout, ceiling_s=ceiling_s) as ready:
        first_token(ready)
        return time.monotonic() - began_s


def help_s(checkout: Path) -> float:
    times = []
    for _ in range(5):
        began_s = time.monotonic()
        subprocess.run([checkout / ".venv" / "bin" / "sparewatt", "--help"], check=True, capture_output=True)
        times.append(time.monotonic() - began_s)
    return sorted(times)[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "sparewatt"
        began_s = time.monotonic()
        subprocess.run(["git", "clone", "-q", REPO, checkout], check=True)
        clean_s = timed(checkout, ceiling_s=FIRST_S_MAX, began_s=began_s)
        again_s = timed(checkout, ceiling_s=SECOND_S_MAX, began_s=time.monotonic())
        result = {
            "cores": os.cpu_count(),
            "clean_clone_to_first_token_s": round(clean_s, 1),
            "second_start_to_first_token_s": round(again_s, 1),
            "help_s": round(help_s(checkout), 3),
        }
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

"""Prints the log of a lease. A followed one goes on when the machine or the gateway was away."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, decode, path_of, path_with_query
from sparewatt.cli.errors import ApiError, CliError, NoReply
from sparewatt.protocol.api.lease_access import LeaseLogPiece

SILENCE_S = 60.0
"""The gateway sends a keep-alive every 15 s."""
LOST_MAX, LOST_WAIT_S = 20, 3.0
"""How often in a row a followed log is opened again."""


class _LogLost(Exception):
    """The log broke off, and may go on."""


@dataclass(slots=True)
class _LogPrinter:
    client: ApiClient
    wanted: str
    as_json: bool
    has_printed: bool = False

    def print(self, *, follow: bool, tail: int | None) -> None:
        """Raises _LogLost or CliError."""
        query = {"follow": "true" if follow else None, "tail": tail, "format": "json"}
        path = path_with_query(path_of("leases", self.wanted, "logs"), query)
        try:
            with self.client.stream_lines(path, silence_s=SILENCE_S) as lines:
                for line in lines:
                    if line:
                        self._print(line)
        except NoReply as error:
            raise _LogLost(error.message) from None
        except ApiError as error:
            if error.http_status < 500:
                raise
            raise _LogLost(error.message) from None

    def _print(self, line: bytes) -> None:
        piece = decode(line, LeaseLogPiece, base_url=self.client.base_url)
        if piece.error is not None:
            status = 503 if piece.error.code == "node_unreachable" else 422
            raise self.client.build_error(piece.error, status=status, path="/leases")
        self.has_printed = True
        if self.as_json:
            print(line.decode())
        else:
            target = sys.stderr if piece.stream == "stderr" else sys.stdout
            target.write(piece.text)
        sys.stdout.flush()
        sys.stderr.flush()


def print_logs(client: ApiClient, wanted: str, *, follow: bool, tail: int | None, as_json: bool) -> None:
    """Raises CliError."""
    printer, lost_count = _LogPrinter(client, wanted, as_json), 0
    while lost_count < LOST_MAX:
        printer.has_printed = False
        try:
            printer.print(follow=follow, tail=tail)
        except _LogLost as lost:
            if not follow:
                raise CliError(str(lost), next_step="Try again.") from None
            output.note(f"The log broke off ({lost}). Going on with what comes; some lines may be missing.")
            tail, lost_count = 0, 1 if printer.has_printed else lost_count + 1
            time.sleep(LOST_WAIT_S)
        else:
            return
    raise CliError("The log cannot be followed any more.", next_step=f"See 'sparewatt lease show {wanted}'.")

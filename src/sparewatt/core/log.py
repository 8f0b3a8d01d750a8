"""Structured logs: one JSON object a line. The event is a constant verb phrase; ids and numbers are fields.

Never a prompt, a key or a body: pass ids and counts, nothing else.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping

_FIELDS = "fields"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "t": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, _FIELDS, None)
        if isinstance(fields, Mapping):
            line |= fields
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Log:
    """A logger whose events carry fields: `log.info("node_joined", node=node_id)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={_FIELDS: fields})

    def crash(self, event: str, **fields: object) -> None:
        """An error that nobody foresaw, with its trace; only at the process boundary."""
        self._logger.error(event, exc_info=sys.exc_info(), extra={_FIELDS: fields})


def log_to_stderr(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)

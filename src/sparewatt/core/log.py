"""Structured logging: JSON lines, or on a terminal plain text.

An event's name is a constant verb phrase; ids and numbers are fields. A prompt, a key or a body is never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping

_FIELDS = "fields"


class _FieldsFormatter(logging.Formatter):
    """Adds the same `fields` to every line, for a log that several processes write to."""

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self._fields = fields


class JsonFormatter(_FieldsFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            **_fields_of(record),
            "t": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _message(record),
            **self._fields,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _dumps(line)


class PlainFormatter(_FieldsFormatter):
    """For a terminal. A value is quoted if it could pass for another field or contains control characters."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {**self._fields, **_fields_of(record)}
        words = [f"{time.strftime('%H:%M:%S', time.localtime(record.created))}"]
        words += [] if record.levelno <= logging.INFO else [f"{record.levelname.lower()}:"]
        event = _message(record)
        words += [event if event.isprintable() else json.dumps(event)]
        words += [f"{name}={_word(value)}" for name, value in fields.items()]
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return " ".join(words) + trace


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, _FIELDS, None)
    return fields if isinstance(fields, Mapping) else {}


def _word(value: object) -> str:
    text = _text(value)
    is_plain = text.isprintable() and text.isascii() and text and not set(text) & {" ", '"', "="}
    return text if is_plain else json.dumps(text)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # the format of some library does not fit its arguments
        return str(record.msg)


def _dumps(line: Mapping[str, object]) -> str:
    """Always one line of JSON: a value that JSON does not have is written as text."""
    try:
        return json.dumps(line, default=_text, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({str(name): _text(value) for name, value in line.items()})


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 (a broken `__str__` must not lose the event)
        return f"<{type(value).__name__}>"


class Logger:
    """Logs events with fields: `log.info("node_joined", node=node_id)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={_FIELDS: fields})

    def crash(self, event: str, error: BaseException, /, **fields: object) -> None:
        """Log an unexpected error with its traceback; only at a process boundary."""
        self._logger.error(event, exc_info=error, extra={_FIELDS: fields})


def log_to_stderr(level: str = "INFO", **fields: object) -> None:
    """`fields` are added to every line."""
    _log_with(stderr_handler(**fields), level)


def log_without_stderr(level: str = "INFO") -> None:
    """For a process with a log handler of its own: nothing goes to stderr, not even from libraries."""
    _log_with(logging.NullHandler(), level)


def stderr_handler(**fields: object) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(**fields) if sys.stderr.isatty() else JsonFormatter(**fields))
    return handler


def _log_with(handler: logging.Handler, level: str) -> None:
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)

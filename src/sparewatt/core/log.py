"""Structured logs: one JSON object a line, or on a terminal plain words. The event is a constant verb phrase; ids and
numbers are fields.

Never a prompt, a key or a body: pass ids and counts, nothing else.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping

_FIELDS = "fields"


class _FieldsFormatter(logging.Formatter):
    """With the same `fields` in every line, for a log that several processes write."""

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self._fields = fields


class JsonFormatter(_FieldsFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "t": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _message(record),
            **self._fields,
        }
        fields = getattr(record, _FIELDS, None)
        if isinstance(fields, Mapping):
            line = dict(fields) | line
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _dumps(line)


class PlainFormatter(_FieldsFormatter):
    """For a person at a terminal. Values are quoted where they could be mistaken for more, or steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, None)
        told = {**self._fields, **(fields if isinstance(fields, Mapping) else {})}
        words = [f"{time.strftime('%H:%M:%S', time.localtime(record.created))}"]
        words += [] if record.levelno <= logging.INFO else [f"{record.levelname.lower()}:"]
        words += [_on_one_line(_message(record)), *(f"{name}={_word(value)}" for name, value in told.items())]
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return " ".join(words) + trace


def _word(value: object) -> str:
    text = _text(value)
    return text if text.isprintable() and text.isascii() and text and not set(text) & {" ", '"', "="} else _quoted(text)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # some library's format does not fit its arguments
        return str(record.msg)


def _dumps(line: Mapping[str, object]) -> str:
    """Always one line of JSON: what has no place in JSON is written as text."""
    try:
        return json.dumps(line, default=_text, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({str(name): _text(value) for name, value in line.items()})


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 (whatever it is: an event must not be lost because of what it describes)
        return f"<{type(value).__name__}>"


class Logger:
    """A logger whose events carry fields: `log.info("node_joined", node=node_id)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, extra={_FIELDS: fields})

    def crash(self, event: str, error: BaseException, /, **fields: object) -> None:
        """An error that nobody foresaw, with its trace; only at the process boundary."""
        self._logger.error(event, exc_info=error, extra={_FIELDS: fields})


def log_to_stderr(level: str = "INFO", **fields: object) -> None:
    """`fields` stand in every line."""
    _log_with(stderr_handler(**fields), level)


def log_without_stderr(level: str = "INFO") -> None:
    """For a process that adds a handler of its own: nothing goes to stderr, not even from libraries."""
    _log_with(logging.NullHandler(), level)


def stderr_handler(**fields: object) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(**fields) if sys.stderr.isatty() else JsonFormatter(**fields))
    return handler


def _log_with(handler: logging.Handler, level: str) -> None:
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)

"""Tools for a model whose chat template knows none, by a schema that its answer must follow.

The tools are described in the system message, and the answer is one JSON object: `{"tool_call": …}` or
`{"response": …}`. The server's grammar holds the model to it, and `GenericToolReader` writes it back, as it streams, as
what a client expects: a tool call, or text. One call in an answer. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
_ANSWER = "response"
_CALL = "tool_call"
_INTRODUCTION = (
    "You can call these tools, which are given as JSON:\n{tools}\n"
    'To call one, answer {{"tool_call": {{"name": NAME, "arguments": ARGUMENTS}}}}.'
)
_OR_ANSWER = ' To answer without a tool, write {"response": TEXT}.'


class UnreadableTools(ValueError):
    """The tools of a request have a shape that no server takes. The server is asked all the same, and says so."""


def generic_request(body: Json) -> Json | None:
    """The request for a server that knows no tools; None if it asks for none, or continues an answer.

    Raises UnreadableTools.
    """
    tools, choice, messages = body.get("tools"), body.get("tool_choice"), body.get("messages")
    if not tools or not isinstance(messages, list) or not messages:
        return None
    rest = {name: value for name, value in body.items() if name not in _TOOL_FIELDS}
    is_continued = isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant"
    if choice == "none" or is_continued:
        return rest
    functions = _chosen([_function_of(tool) for tool in tools], choice)
    may_answer = choice in (None, "auto")
    introduction = _INTRODUCTION.format(tools=json.dumps(functions, ensure_ascii=False))
    return rest | {
        "messages": _introduced([_as_text(each) for each in messages], introduction + _OR_ANSWER * may_answer),
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": _schema(functions, body.get("response_format"), may_answer)},
        },
    }


_TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "response_format")


def _function_of(tool: object) -> Json:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnreadableTools("a tool is an object with a function, which has a name")
    return {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}


def _chosen(functions: Sequence[Json], choice: object) -> list[Json]:
    if not isinstance(choice, dict):
        return list(functions)
    named = choice.get("function")
    name = named.get("name") if isinstance(named, dict) else None
    chosen = [each for each in functions if each["name"] == name]
    if not chosen:
        raise UnreadableTools("the chosen tool is not among the tools")
    return chosen


def _schema(functions: Sequence[Json], response_format: object, may_answer: bool) -> Json:  # noqa: FBT001
    """One of the calls, or an answer."""
    definitions: Json = {}
    calls = [_call_schema(each, number, definitions) for number, each in enumerate(functions)]
    variants = [_object(_CALL, each) for each in calls]
    if may_answer:
        variants.append(_object(_ANSWER, _answer_schema(response_format)))
    one = variants[0] if len(variants) == 1 else {"anyOf": variants}
    return one | ({"$defs": definitions} if definitions else {})


def _call_schema(function: Json, number: int, definitions: Json) -> Json:
    """What its parameters define goes to the schema's top, where references look for it."""
    parameters = function.get("parameters")
    parameters = dict(parameters) if isinstance(parameters, dict) else {"type": "object"}
    for place in ("$defs", "definitions"):
        for name, value in (parameters.pop(place, None) or {}).items():
            definitions[f"{number}.{name}"] = _moved(value, number)
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": _moved(parameters, number)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


_DEFINED = re.compile(r"#/(?:\$defs|definitions)/(.+)")


def _moved(value: Any, number: int) -> Any:
    if isinstance(value, list):
        return [_moved(each, number) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {name: _moved(each, number) for name, each in value.items()}
    found = _DEFINED.fullmatch(value["$ref"]) if isinstance(value.get("$ref"), str) else None
    return moved | {"$ref": f"#/$defs/{number}.{found[1]}"} if found else moved


def _answer_schema(response_format: object) -> Json:
    if isinstance(response_format, dict):
        given = response_format.get("json_schema")
        if isinstance(given, dict) and isinstance(given.get("schema"), dict):
            return dict(given["schema"])
        if response_format.get("type") == "json_object":
            return {"type": "object"}
    return {"type": "string"}


def _object(name: str, value: Json) -> Json:
    return {"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False}


# messages


def _introduced(messages: list[Any], introduction: str) -> list[Any]:
    """With the introduction at the end of the system message, or as one."""
    first = messages[0] if isinstance(messages[0], dict) else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [first | {"content": f"{first['content']}\n\n{introduction}"}, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]


def _as_text(message: Any) -> Any:
    """A call of an earlier turn as the model wrote it: its template would leave it out."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not calls:
        return message
    functions = [call.get("function") or {} for call in calls if isinstance(call, dict)]
    written = [
        f'{{"{_CALL}": {{"name": {json.dumps(each.get("name"))}, "arguments": {each.get("arguments") or "{}"}}}}}'
        for each in functions
    ]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": "\n".join([*([message["content"]] if message.get("content") else []), *written])}


# the answer


_OPENING = re.compile(rf'\s*\{{\s*"({_ANSWER}|{_CALL})"\s*:\s*(?=\S)')
_NAMED = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_ESCAPE_CHARS_MAX = 12
"""Of a character beyond the basic plane, escaped by its two numbers."""
OPENING_CHARS_MAX = 4_096
"""Before an answer shows what it is; the name of a tool is in it."""


class GenericToolReader:
    """Reads one answer, piece by piece. What does not look as agreed is passed on as text: a schema may be ignored."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._rest = ""
        self._kind = ""
        """`response` or `tool_call`, once that is known; `text` for anything else."""
        self._scanner = _ValueScanner()
        self._is_text_value = False
        self.has_called = False

    def feed(self, piece: str) -> list[Json]:
        """The deltas that the piece becomes."""
        self._rest += piece
        if not self._kind and not self._open():
            return []
        if self._kind == "text":
            text, self._rest = self._rest, ""
            return [{"content": text}] if text else []
        if self._kind == _CALL and not self.has_called:
            return self._name()
        return self._value()

    def end(self) -> list[Json]:
        """What is left when the answer ends early."""
        left, self._rest = self._rest, ""
        is_unread = not self._kind or self._kind == "text"
        return [{"content": left}] if is_unread and left else []

    def _open(self) -> bool:
        found = _OPENING.match(self._rest)
        if found is not None:
            self._kind, self._rest = found[1], self._rest[found.end() :]
            if self._kind == _ANSWER:
                self._is_text_value = self._rest.startswith('"')
            return True
        if not _may_open(self._rest):
            self._kind = "text"
        return bool(self._kind)

    def _name(self) -> list[Json]:
        found = _NAMED.match(self._rest)
        if found is None:
            return []
        self._rest, self.has_called = self._rest[found.end() :], True
        function = {"name": json.loads(found[1]), "arguments": ""}
        head: Json = {"tool_calls": [{"index": 0, "id": self._call_id, "type": "function", "function": function}]}
        return [head, *self._value()]

    def _value(self) -> list[Json]:
        piece, self._rest = self._scanner.take(self._rest), ""
        if self._kind == _CALL:
            return [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}] if piece else []
        text = self._scanner.unescaped(piece) if self._is_text_value else piece
        return [{"content": text}] if text else []


def _may_open(text: str) -> bool:
    """Whether more of it could become an opening."""
    start = text.lstrip()
    bare = re.sub(r"\s", "", start)
    openings = (f'{{"{_ANSWER}":', f'{{"{_CALL}":')
    return len(text) < OPENING_CHARS_MAX and any(each.startswith(bare) for each in openings)


class _ValueScanner:
    """Finds the end of one JSON value in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._has_begun = False
        self._is_over = False
        self._half = ""

    def take(self, text: str) -> str:
        """The part that belongs to the value."""
        if self._is_over:
            return ""
        for at, sign in enumerate(text):
            if self._ends_before(sign):
                self._is_over = True
                return text[:at]
            if self._ends_with(sign):
                self._is_over = True
                return text[: at + 1]
        return text

    def _ends_before(self, sign: str) -> bool:
        """A number or a word ends where something else begins."""
        is_bare = self._has_begun and self._depth == 0 and not self._is_in_string
        return is_bare and sign in ",}] \n\r\t"

    def _ends_with(self, sign: str) -> bool:
        self._has_begun = self._has_begun or not sign.isspace()
        if self._is_in_string:
            if self._is_escaped:
                self._is_escaped = False
            elif sign == "\\":
                self._is_escaped = True
            elif sign == '"':
                self._is_in_string = False
                return self._depth == 0
            return False
        if sign == '"':
            self._is_in_string = True
        elif sign in "{[":
            self._depth += 1
        elif sign in "}]":
            self._depth -= 1
            return self._depth == 0
        return False

    def unescaped(self, piece: str) -> str:
        """Of a string's pieces, with its quotes: their text, as far as no escape is cut."""
        self._half += piece
        inside = self._half.removeprefix('"') if not self._half.startswith("\x00") else self._half[1:]
        if self._is_over and inside.endswith('"'):
            inside = inside[:-1]
        whole, half = _without_half_escape(inside, is_over=self._is_over)
        self._half = "\x00" + half  # the opening quote is behind us
        try:
            return str(json.loads(f'"{whole}"', strict=False))
        except ValueError:
            return whole


_HALF_ESCAPE = re.compile(
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?\\(?:u[0-9a-fA-F]{0,3})?\Z|\\u[dD][89abAB][0-9a-fA-F]{2}\Z"
)


def _without_half_escape(text: str, *, is_over: bool) -> tuple[str, str]:
    if is_over:
        return text, ""
    tail = text[-_ESCAPE_CHARS_MAX:]
    found = _HALF_ESCAPE.search(tail)
    if found is None or _is_escaped_at(text, len(text) - len(tail) + found.start()):
        return text, ""
    at = len(text) - len(tail) + found.start()
    return text[:at], text[at:]


def _is_escaped_at(text: str, at: int) -> bool:
    """Whether the sign at this place is escaped: an odd number of backslashes is before it."""
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def whole_message(message: Mapping[str, Any], call_id: str) -> Json:
    """The message of a whole answer, from that of a server that wrote the agreed JSON."""
    reader = GenericToolReader(call_id)
    deltas = [*reader.feed(str(message.get("content") or "")), *reader.end()]
    text = "".join(delta.get("content") or "" for delta in deltas)
    if not reader.has_called:
        return {**message, "content": text}
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    function = {"name": calls[0]["name"], "arguments": "".join(call["arguments"] for call in calls)}
    return {**message, "content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}

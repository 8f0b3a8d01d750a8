"""A pytest plugin for openai-python's own tests of what is stored, which were written for a mock.

The mock knows every name: the tests ask without a model or an input, and for responses, conversations and chat
completions that nobody made. Here what they leave out is filled in, and what they name is made first. A conversation
and a prompt template, which they send beside a previous response, are left out: there are no templates here, and
OpenAI's own API refuses the three together. What comes back is judged by the tests as it is.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai._models import FinalRequestOptions

PATH = re.compile(r"^/responses(?:/(?P<name>[^/?]+))?(?P<rest>.*)$")
CHAT_PATH = re.compile(r"^/chat/completions/[^/?]+(?P<rest>.*)$")
CONVERSATION_PATH = re.compile(r"^/conversations/[^/?]+(?P<rest>/items(?P<item>/[^/?]+)?)?$")
HELLO = {"type": "message", "role": "user", "content": "Hi"}
OWN = ("compact", "input_tokens")
NOT_HERE = ("conversation", "prompt")
MODEL = "gpt-6-astra"
"""As the tests call it where they name one."""


def stored_response() -> str:
    """The id of a new one."""
    response_id: str = made("/responses", {"model": MODEL, "input": "Hi", "store": True, "max_output_tokens": 4})["id"]
    return response_id


def made(path: str, body: object) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 (the address of the network under test)
        os.environ["TEST_API_BASE_URL"].rstrip("/") + path,
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {os.environ['SUITE_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 (likewise)
        found: dict[str, Any] = json.load(reply)
    return found


def stored_path(path: str) -> str:
    """The same path, of a chat completion, a conversation or an item that there is."""
    if (found := CHAT_PATH.match(path)) is not None:
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "store": True, "max_tokens": 4}
        return f"/chat/completions/{made('/chat/completions', chat)['id']}{found['rest']}"
    if (found := CONVERSATION_PATH.match(path)) is not None:
        conversation = made("/conversations", {})["id"]
        if found["item"] is None:
            return f"/conversations/{conversation}{found['rest'] or ''}"
        item = made(f"/conversations/{conversation}/items", {"items": [HELLO]})["data"][0]["id"]
        return f"/conversations/{conversation}/items/{item}"
    return path


def completed(options: FinalRequestOptions) -> FinalRequestOptions:
    """The same request with real names."""
    found = PATH.match(options.url)
    if found is None:
        options.url = stored_path(options.url)
        return options
    name = found["name"]
    if name is not None and name not in OWN:
        options.url = f"/responses/{stored_response()}{found['rest']}"
    elif options.method == "post":
        options.json_data = _body(options.json_data)
    return options


def _body(given: Any) -> dict[str, Any]:
    body = {name: value for name, value in (given or {}).items() if name not in NOT_HERE}
    if "previous_response_id" in body:
        body["previous_response_id"] = stored_response()
    return {"model": MODEL, "input": "Hi"} | body


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    async def completed_later(_: AsyncOpenAI, options: FinalRequestOptions) -> FinalRequestOptions:
        return completed(options)

    patch = pytest.MonkeyPatch()
    patch.setattr(OpenAI, "_prepare_options", lambda _, options: completed(options))
    patch.setattr(AsyncOpenAI, "_prepare_options", completed_later)

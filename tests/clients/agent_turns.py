"""What a user of OpenAI's Agents SDK does; prints what happened as JSON.

python agent_turns.py BASE_URL API_KEY MODEL [stream]
With "stream" it reads one long answer, and says when that has begun.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agents import (  # type: ignore[import-not-found]
    Agent,
    OpenAIConversationsSession,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, BadRequestError

PROMPTS = ("Say one.", "What is the weather?", "Say three.")
INSTRUCTIONS = "Be brief."


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@function_tool  # type: ignore[untyped-decorator]
def get_weather(city: str) -> str:
    """The weather at a place, now."""
    del city
    return "Rain."


async def turns(agent: Agent, **options: Any) -> list[dict[str, Any]]:
    """Three of them; `options` say what carries the state."""
    found = []
    for prompt in PROMPTS:
        result = await Runner.run(agent, prompt, max_turns=5, **options)
        found.append({"text": result.final_output, "steps": len(result.raw_responses)})
        if "previous_response_id" in options:
            options["previous_response_id"] = result.last_response_id
    return found


async def overflow(agent: Agent) -> list[object]:
    try:
        await Runner.run(agent, "word " * 20_000)
    except BadRequestError as error:
        return [error.status_code, error.code]
    return []


async def streamed(agent: Agent) -> str:
    text, pieces = "", 0
    async for event in Runner.run_streamed(agent, "Tell me a long story.").stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text, pieces = text + event.data.delta, pieces + 1
            if pieces == 5:
                tell("begun")
    return text


async def main(base_url: str, api_key: str, model: str, mode: str = "turns") -> None:
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    set_default_openai_client(client, use_for_tracing=False)
    set_tracing_disabled(True)
    teller = Agent(name="teller", instructions=INSTRUCTIONS, model=model, tools=[get_weather])
    if mode == "stream":
        tell(json.dumps(await streamed(teller)))
        return
    desk = Agent(name="desk", instructions=INSTRUCTIONS, model=model, handoffs=[teller])
    handed = await Runner.run(desk, "Transfer me to the teller, please.", max_turns=5)
    report = {
        "previous_response_id": await turns(teller, previous_response_id=None),
        "session": await turns(teller, session=SQLiteSession("local")),
        "conversation": await turns(teller, session=OpenAIConversationsSession(openai_client=client)),
        "handoff": handed.last_agent.name,
        "overflow": await overflow(teller),
    }
    tell(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))

"""Prompts of the network's own making, drawn from a seed. Pure: the same seed gives the same prompt, for a replay.

They must look like traffic, so they vary as clients do: in subject and task, in length, with and without a system
message, with earlier turns, streamed or not, by either name of the limit. Limits on the answer's length are drawn from
those that clients of the model have set lately. All are open questions: two models hardly ever begin such an answer
with the same words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

OUTPUT_TOKENS_MIN, OUTPUT_TOKENS_MAX = 24, 96
"""Enough to tell models apart, and no more: the network pays for it."""
SEED_BYTES = 16
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ProbePrompt:
    messages: tuple[dict[str, str], ...]
    max_tokens: int
    stream: bool
    options: tuple[tuple[str, Any], ...] = ()
    """Further fields of the request."""

    def request(self, model: str) -> dict[str, Any]:
        """The body of a chat completion."""
        return {"model": model, "messages": list(self.messages), "stream": self.stream, **dict(self.options)}


class _Draws:
    """Choices that follow from a seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._count = seed, 0

    def below(self, bound: int) -> int:
        self._count += 1
        digest = hashlib.blake2b(self._count.to_bytes(4, "big"), key=self._seed, digest_size=8).digest()
        return int.from_bytes(digest, "big") % bound

    def pick(self, among: Sequence[_T]) -> _T:
        return among[self.below(len(among))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent


def draw_probe(seed: bytes, *, limits: Sequence[int] = ()) -> ProbePrompt:
    """`limits`: on answers, in tokens, as clients set them lately."""
    draws = _Draws(seed)
    messages = _messages(draws)
    wanted = draws.pick(limits) if limits else OUTPUT_TOKENS_MIN + draws.below(OUTPUT_TOKENS_MAX - OUTPUT_TOKENS_MIN)
    tokens = min(OUTPUT_TOKENS_MAX, max(OUTPUT_TOKENS_MIN, wanted))
    name = "max_completion_tokens" if draws.chance(35) else "max_tokens"
    options: list[tuple[str, Any]] = [("temperature", 0), (name, tokens)]
    if draws.chance(25):
        options.append(("top_p", 1))
    if draws.chance(15):
        options.append(("user", f"u{draws.below(10**6)}"))
    stream = draws.chance(60)
    if stream and draws.chance(40):
        options.append(("stream_options", {"include_usage": True}))
    return ProbePrompt(tuple(messages), tokens, stream, tuple(options))


def _messages(draws: _Draws) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": draws.pick(SYSTEMS)}] if draws.chance(55) else []
    if draws.chance(20):
        messages.append({"role": "user", "content": _question(draws)})
        messages.append({"role": "assistant", "content": draws.pick(REPLIES).format(topic=draws.pick(TOPICS))})
    messages.append({"role": "user", "content": _question(draws)})
    return messages


def _question(draws: _Draws) -> str:
    text = draws.pick(TASKS).format(
        topic=draws.pick(TOPICS),
        other=draws.pick(TOPICS),
        place=draws.pick(PLACES),
        who=draws.pick(PEOPLE),
        n=2 + draws.below(9),
        year=1850 + draws.below(175),
    )
    if draws.chance(35):
        text += " " + draws.pick(WISHES).format(n=2 + draws.below(6))
    return text.lower().rstrip(".?") if draws.chance(12) else text


SYSTEMS = (
    "You are a helpful assistant.",
    "You are a concise assistant. Answer in plain language.",
    "You are an expert writer who helps with drafts.",
    "Answer the user's question truthfully. If you are unsure, say so.",
    "You help customers of a small company. Be friendly and brief.",
    "You are a patient teacher.",
    "You are a senior engineer who reviews other people's work.",
    "You write short texts for a newsletter.",
)
REPLIES = (
    "Gladly. What would you like to know about {topic}?",
    "Sure, I can help with {topic}. What have you tried so far?",
    "That depends on what you need {topic} for.",
    "There are several ways to look at {topic}. Where shall we begin?",
)
TASKS = (
    "Write a short paragraph about {topic}.",
    "Explain {topic} to {who}.",
    "What should {who} know about {topic} before a trip to {place}?",
    "Give me {n} ideas for a blog post about {topic}.",
    "Write an email to {who} about {topic}.",
    "Compare {topic} with {other}.",
    "Why did people in {place} care about {topic} around {year}?",
    "Draft a polite complaint about {topic}, addressed to {who}.",
    "Summarise the main arguments for and against {topic}.",
    "Tell a story in which {who} discovers {topic} in {place}.",
    "How would you plan a workshop on {topic} for {n} people?",
    "What are common mistakes with {topic}?",
    "Write a product description that mentions {topic} and {other}.",
    "I am {who} and new to {topic}. Where do I start?",
    "Describe {place} as somebody interested in {topic} would see it.",
    "Make a checklist with {n} points for {topic}.",
    "Write a dialogue between {who} and a visitor from {place} on {topic}.",
    "What would change in {place} if {topic} became free?",
    "Suggest a title and an opening sentence for an essay on {topic}.",
    "Answer like {who}: is {topic} worth the effort?",
    "Which {n} questions would you ask an expert on {topic}?",
    "Write a short speech about {topic} for a meeting in {place}.",
    "Invent a small business that combines {topic} and {other}.",
    "How did {topic} change after {year}?",
)
WISHES = (
    "Keep it under {n}0 words.",
    "Use {n} sentences.",
    "Please be specific.",
    "No bullet points, please.",
    "Write it for beginners.",
    "Start with the most important point.",
    "Use an example.",
    "Mention at least one number.",
)
TOPICS = (
    "beekeeping", "public transport", "sourdough bread", "solar panels", "remote work", "stamp collecting",
    "inflation", "vegetable gardening", "electric bicycles", "medieval castles", "data privacy", "marathon training",
    "jazz piano", "open source software", "coral reefs", "wooden toys", "tax returns", "night photography",
    "school lunches", "spreadsheets", "mountain rescue", "tea ceremonies", "battery recycling", "chess openings",
    "stage fright", "wind turbines", "family recipes", "cloud backups", "street markets", "volunteer fire brigades",
    "insurance claims", "language learning", "urban foxes", "paper maps", "project deadlines", "second-hand clothes",
    "home insulation", "weather forecasts", "board games", "museum tickets", "job interviews", "river floods",
    "vaccination campaigns", "podcast editing", "apple orchards", "train delays", "password managers", "pottery",
    "bird migration", "rental contracts", "meditation", "satellite images", "cheese making", "customer feedback",
    "bicycle repair", "sleep habits", "library fines", "drone footage", "savings accounts", "local elections",
)  # fmt: skip
PLACES = (
    "Lisbon", "a village in Norway", "Nairobi", "Kyoto", "the Scottish Highlands", "Buenos Aires", "Chicago", "Hanoi",
    "Vienna", "a suburb of Melbourne", "Casablanca", "Toronto", "the Alps", "Istanbul", "Mumbai", "Reykjavik",
    "Rotterdam", "a small island", "Warsaw", "Lima", "Seoul", "Dakar", "Naples", "Auckland",
)  # fmt: skip
PEOPLE = (
    "a ten-year-old", "my manager", "a retired nurse", "a landlord", "a first-year student", "a farmer",
    "the city council", "a sceptical engineer", "a new colleague", "my grandmother", "a travel agent", "a journalist",
    "a taxi driver", "a shop owner", "an accountant", "a tourist", "a musician", "a busy parent",
)  # fmt: skip

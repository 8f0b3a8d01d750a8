"""LangChain's standard tests for chat models, with its OpenAI client pointed at a network.

Runs in an environment of its own (langchain.lock), with nothing of ours imported.
"""

from __future__ import annotations

import os

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestSparewatt(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, object]:
        return {
            "model": os.environ["SUITE_MODEL"],
            "base_url": os.environ["SUITE_BASE_URL"],
            "api_key": os.environ["SUITE_API_KEY"],
            "stream_usage": True,
            "use_responses_api": bool(os.environ.get("SUITE_USE_RESPONSES")),
            "max_retries": 0,
        }

    @property
    def supports_image_inputs(self) -> bool:
        return True

    def test_an_overflow_is_langchains_own_error(self, model: BaseChatModel) -> None:
        """Ours: the prompt is longer than the context, which only the model server can count."""
        with pytest.raises(ContextOverflowError):
            model.invoke("word " * 9000)

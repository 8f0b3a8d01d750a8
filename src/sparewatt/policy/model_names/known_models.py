"""The shipped table of models: each one's network name, its parameters, and what other programs call it.

A row is `(name, billions of parameters, Hugging Face ids, Ollama tags)`. The first Hugging Face id is the maker's own,
as it is spelled there; the others may leave out the organisation. Quantization and file endings are left out
everywhere: `parser.py` strips them. A new model is a new row. Two rows must never claim the same id, and one row never
names two models: other sizes, versions, base models, distillates and fine-tunes have rows of their own or none.

The name without a variant is the model that follows instructions; its base model, where there is one, is `…-base`.
"""

# ruff: noqa: E501 (a table has a line for each row)

from __future__ import annotations

from typing import NamedTuple


class KnownModel(NamedTuple):
    name: str
    billions: float | None
    """Parameters, those of all experts included; None where nobody needs to check them."""
    hugging_face: str
    """Ids, separated by spaces."""
    ollama: str = ""
    """Tags, separated by spaces; one without a colon stands for the tag `latest` as well."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The ids that a client may use instead of the name: the maker's, and Ollama's."""
        return (self.hugging_face.split()[0], *self.ollama.split())


_LLAMA = (
    ("llama-3-8b", 8.03, "meta-llama/Meta-Llama-3-8B-Instruct Llama-3-8B-Instruct", "llama3:8b llama3 llama3:8b-instruct llama3:instruct"),
    ("llama-3-8b-base", 8.03, "meta-llama/Meta-Llama-3-8B Llama-3-8B", "llama3:8b-text llama3:text"),
    ("llama-3-70b", 70.6, "meta-llama/Meta-Llama-3-70B-Instruct Llama-3-70B-Instruct", "llama3:70b llama3:70b-instruct"),
    ("llama-3-70b-base", 70.6, "meta-llama/Meta-Llama-3-70B Llama-3-70B", "llama3:70b-text"),
    ("llama-3.1-8b", 8.03, "meta-llama/Llama-3.1-8B-Instruct Meta-Llama-3.1-8B-Instruct", "llama3.1:8b llama3.1 llama3.1:8b-instruct"),
    ("llama-3.1-8b-base", 8.03, "meta-llama/Llama-3.1-8B Meta-Llama-3.1-8B", "llama3.1:8b-text"),
    ("llama-3.1-70b", 70.6, "meta-llama/Llama-3.1-70B-Instruct Meta-Llama-3.1-70B-Instruct", "llama3.1:70b llama3.1:70b-instruct"),
    ("llama-3.1-70b-base", 70.6, "meta-llama/Llama-3.1-70B Meta-Llama-3.1-70B", "llama3.1:70b-text"),
    ("llama-3.1-405b", 406.0, "meta-llama/Llama-3.1-405B-Instruct Meta-Llama-3.1-405B-Instruct", "llama3.1:405b llama3.1:405b-instruct"),
    ("llama-3.1-405b-base", 406.0, "meta-llama/Llama-3.1-405B Meta-Llama-3.1-405B", "llama3.1:405b-text"),
    ("llama-3.2-1b", 1.24, "meta-llama/Llama-3.2-1B-Instruct", "llama3.2:1b llama3.2:1b-instruct"),
    ("llama-3.2-1b-base", 1.24, "meta-llama/Llama-3.2-1B", "llama3.2:1b-text"),
    ("llama-3.2-3b", 3.21, "meta-llama/Llama-3.2-3B-Instruct", "llama3.2:3b llama3.2 llama3.2:3b-instruct"),
    ("llama-3.2-3b-base", 3.21, "meta-llama/Llama-3.2-3B", "llama3.2:3b-text"),
    ("llama-3.2-11b-vision", 10.7, "meta-llama/Llama-3.2-11B-Vision-Instruct", "llama3.2-vision:11b llama3.2-vision llama3.2-vision:11b-instruct"),
    ("llama-3.2-11b-vision-base", 10.7, "meta-llama/Llama-3.2-11B-Vision"),
    ("llama-3.2-90b-vision", 88.6, "meta-llama/Llama-3.2-90B-Vision-Instruct", "llama3.2-vision:90b llama3.2-vision:90b-instruct"),
    ("llama-3.3-70b", 70.6, "meta-llama/Llama-3.3-70B-Instruct", "llama3.3:70b llama3.3 llama3.3:70b-instruct"),
    ("llama-4-scout-17b-16e", 109.0, "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4:scout llama4 llama4:16x17b"),
    ("llama-4-maverick-17b-128e", 402.0, "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama4:maverick llama4:128x17b"),
    ("tinyllama-1.1b", 1.1, "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama:1.1b tinyllama tinyllama:chat tinyllama:1.1b-chat"),
)  # fmt: skip

_QWEN = (
    ("qwen2.5-0.5b", 0.494, "Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5:0.5b qwen2.5:0.5b-instruct"),
    ("qwen2.5-0.5b-base", 0.494, "Qwen/Qwen2.5-0.5B", "qwen2.5:0.5b-base"),
    ("qwen2.5-1.5b", 1.54, "Qwen/Qwen2.5-1.5B-Instruct", "qwen2.5:1.5b qwen2.5:1.5b-instruct"),
    ("qwen2.5-1.5b-base", 1.54, "Qwen/Qwen2.5-1.5B", "qwen2.5:1.5b-base"),
    ("qwen2.5-3b", 3.09, "Qwen/Qwen2.5-3B-Instruct", "qwen2.5:3b qwen2.5:3b-instruct"),
    ("qwen2.5-3b-base", 3.09, "Qwen/Qwen2.5-3B", "qwen2.5:3b-base"),
    ("qwen2.5-7b", 7.62, "Qwen/Qwen2.5-7B-Instruct", "qwen2.5:7b qwen2.5 qwen2.5:7b-instruct"),
    ("qwen2.5-7b-base", 7.62, "Qwen/Qwen2.5-7B", "qwen2.5:7b-base"),
    ("qwen2.5-7b-1m", 7.62, "Qwen/Qwen2.5-7B-Instruct-1M"),
    ("qwen2.5-14b", 14.8, "Qwen/Qwen2.5-14B-Instruct", "qwen2.5:14b qwen2.5:14b-instruct"),
    ("qwen2.5-14b-base", 14.8, "Qwen/Qwen2.5-14B", "qwen2.5:14b-base"),
    ("qwen2.5-14b-1m", 14.8, "Qwen/Qwen2.5-14B-Instruct-1M"),
    ("qwen2.5-32b", 32.8, "Qwen/Qwen2.5-32B-Instruct", "qwen2.5:32b qwen2.5:32b-instruct"),
    ("qwen2.5-32b-base", 32.8, "Qwen/Qwen2.5-32B", "qwen2.5:32b-base"),
    ("qwen2.5-72b", 72.7, "Qwen/Qwen2.5-72B-Instruct", "qwen2.5:72b qwen2.5:72b-instruct"),
    ("qwen2.5-72b-base", 72.7, "Qwen/Qwen2.5-72B", "qwen2.5:72b-base"),
    ("qwen2.5-coder-0.5b", 0.494, "Qwen/Qwen2.5-Coder-0.5B-Instruct", "qwen2.5-coder:0.5b qwen2.5-coder:0.5b-instruct"),
    ("qwen2.5-coder-0.5b-base", 0.494, "Qwen/Qwen2.5-Coder-0.5B", "qwen2.5-coder:0.5b-base"),
    ("qwen2.5-coder-1.5b", 1.54, "Qwen/Qwen2.5-Coder-1.5B-Instruct", "qwen2.5-coder:1.5b qwen2.5-coder:1.5b-instruct"),
    ("qwen2.5-coder-1.5b-base", 1.54, "Qwen/Qwen2.5-Coder-1.5B", "qwen2.5-coder:1.5b-base"),
    ("qwen2.5-coder-3b", 3.09, "Qwen/Qwen2.5-Coder-3B-Instruct", "qwen2.5-coder:3b qwen2.5-coder:3b-instruct"),
    ("qwen2.5-coder-3b-base", 3.09, "Qwen/Qwen2.5-Coder-3B", "qwen2.5-coder:3b-base"),
    ("qwen2.5-coder-7b", 7.62, "Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-coder:7b qwen2.5-coder qwen2.5-coder:7b-instruct"),
    ("qwen2.5-coder-7b-base", 7.62, "Qwen/Qwen2.5-Coder-7B", "qwen2.5-coder:7b-base"),
    ("qwen2.5-coder-14b", 14.8, "Qwen/Qwen2.5-Coder-14B-Instruct", "qwen2.5-coder:14b qwen2.5-coder:14b-instruct"),
    ("qwen2.5-coder-14b-base", 14.8, "Qwen/Qwen2.5-Coder-14B", "qwen2.5-coder:14b-base"),
    ("qwen2.5-coder-32b", 32.8, "Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-coder:32b qwen2.5-coder:32b-instruct"),
    ("qwen2.5-coder-32b-base", 32.8, "Qwen/Qwen2.5-Coder-32B", "qwen2.5-coder:32b-base"),
    ("qwen2.5-vl-3b", 3.75, "Qwen/Qwen2.5-VL-3B-Instruct", "qwen2.5vl:3b"),
    ("qwen2.5-vl-7b", 8.29, "Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5vl:7b qwen2.5vl"),
    ("qwen2.5-vl-32b", 33.5, "Qwen/Qwen2.5-VL-32B-Instruct", "qwen2.5vl:32b"),
    ("qwen2.5-vl-72b", 73.4, "Qwen/Qwen2.5-VL-72B-Instruct", "qwen2.5vl:72b"),
    ("qwq-32b", 32.8, "Qwen/QwQ-32B", "qwq:32b qwq"),
    ("qwen3-0.6b", 0.752, "Qwen/Qwen3-0.6B", "qwen3:0.6b"),
    ("qwen3-0.6b-base", 0.752, "Qwen/Qwen3-0.6B-Base"),
    ("qwen3-1.7b", 2.03, "Qwen/Qwen3-1.7B", "qwen3:1.7b"),
    ("qwen3-1.7b-base", 2.03, "Qwen/Qwen3-1.7B-Base"),
    ("qwen3-4b", 4.02, "Qwen/Qwen3-4B"),
    ("qwen3-4b-base", 4.02, "Qwen/Qwen3-4B-Base"),
    ("qwen3-4b-instruct-2507", 4.02, "Qwen/Qwen3-4B-Instruct-2507", "qwen3:4b-instruct qwen3:4b-instruct-2507"),
    ("qwen3-4b-thinking-2507", 4.02, "Qwen/Qwen3-4B-Thinking-2507", "qwen3:4b-thinking qwen3:4b-thinking-2507"),
    ("qwen3-8b", 8.19, "Qwen/Qwen3-8B", "qwen3:8b qwen3"),
    ("qwen3-8b-base", 8.19, "Qwen/Qwen3-8B-Base"),
    ("qwen3-14b", 14.8, "Qwen/Qwen3-14B", "qwen3:14b"),
    ("qwen3-14b-base", 14.8, "Qwen/Qwen3-14B-Base"),
    ("qwen3-32b", 32.8, "Qwen/Qwen3-32B", "qwen3:32b"),
    ("qwen3-30b-a3b", 30.5, "Qwen/Qwen3-30B-A3B"),
    ("qwen3-30b-a3b-base", 30.5, "Qwen/Qwen3-30B-A3B-Base"),
    ("qwen3-30b-a3b-instruct-2507", 30.5, "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3:30b-a3b-instruct-2507 qwen3:30b-instruct"),
    ("qwen3-30b-a3b-thinking-2507", 30.5, "Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3:30b-a3b-thinking-2507 qwen3:30b-thinking"),
    ("qwen3-235b-a22b", 235.0, "Qwen/Qwen3-235B-A22B"),
    ("qwen3-235b-a22b-instruct-2507", 235.0, "Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3:235b-a22b-instruct-2507 qwen3:235b-instruct"),
    ("qwen3-235b-a22b-thinking-2507", 235.0, "Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3:235b-a22b-thinking-2507 qwen3:235b-thinking"),
    ("qwen3-coder-30b-a3b", 30.5, "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder:30b qwen3-coder qwen3-coder:30b-a3b"),
    ("qwen3-coder-480b-a35b", 480.0, "Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder:480b qwen3-coder:480b-a35b"),
    ("qwen3-next-80b-a3b", 81.3, "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    ("qwen3-next-80b-a3b-thinking", 81.3, "Qwen/Qwen3-Next-80B-A3B-Thinking"),
)  # fmt: skip

_MISTRAL = (
    ("mistral-7b-v0.1", 7.24, "mistralai/Mistral-7B-Instruct-v0.1", "mistral:7b-instruct-v0.1 mistral:v0.1"),
    ("mistral-7b-v0.1-base", 7.24, "mistralai/Mistral-7B-v0.1", "mistral:7b-text-v0.1"),
    ("mistral-7b-v0.2", 7.24, "mistralai/Mistral-7B-Instruct-v0.2", "mistral:7b-instruct-v0.2 mistral:v0.2"),
    ("mistral-7b-v0.2-base", 7.24, "mistral-community/Mistral-7B-v0.2", "mistral:7b-text-v0.2"),
    ("mistral-7b-v0.3", 7.25, "mistralai/Mistral-7B-Instruct-v0.3", "mistral:7b mistral mistral:7b-instruct-v0.3 mistral:v0.3"),
    ("mistral-7b-v0.3-base", 7.25, "mistralai/Mistral-7B-v0.3", "mistral:7b-text-v0.3"),
    ("ministral-8b-2410", 8.02, "mistralai/Ministral-8B-Instruct-2410"),
    ("mistral-nemo-12b-2407", 12.2, "mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo:12b mistral-nemo mistral-nemo:12b-instruct-2407"),
    ("mistral-nemo-12b-2407-base", 12.2, "mistralai/Mistral-Nemo-Base-2407"),
    ("mistral-small-22b-2409", 22.2, "mistralai/Mistral-Small-Instruct-2409", "mistral-small:22b mistral-small:22b-instruct-2409"),
    ("mistral-small-24b-2501", 23.6, "mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small:24b mistral-small mistral-small:24b-instruct-2501"),
    ("mistral-small-24b-2501-base", 23.6, "mistralai/Mistral-Small-24B-Base-2501"),
    ("mistral-small-3.1-24b-2503", 24.0, "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral-small3.1:24b mistral-small3.1 mistral-small3.1:24b-instruct-2503"),
    ("mistral-small-3.1-24b-2503-base", 24.0, "mistralai/Mistral-Small-3.1-24B-Base-2503"),
    ("mistral-small-3.2-24b-2506", 24.0, "mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small3.2:24b mistral-small3.2 mistral-small3.2:24b-instruct-2506"),
    ("mistral-large-123b-2411", 123.0, "mistralai/Mistral-Large-Instruct-2411", "mistral-large:123b mistral-large mistral-large:123b-instruct-2411"),
    ("mixtral-8x7b-v0.1", 46.7, "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral:8x7b mixtral mixtral:8x7b-instruct-v0.1 mixtral:instruct"),
    ("mixtral-8x7b-v0.1-base", 46.7, "mistralai/Mixtral-8x7B-v0.1", "mixtral:8x7b-text-v0.1"),
    ("mixtral-8x22b-v0.1", 141.0, "mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral:8x22b mixtral:8x22b-instruct-v0.1"),
    ("mixtral-8x22b-v0.1-base", 141.0, "mistralai/Mixtral-8x22B-v0.1", "mixtral:8x22b-text-v0.1"),
    ("codestral-22b-v0.1", 22.2, "mistralai/Codestral-22B-v0.1", "codestral:22b codestral codestral:22b-v0.1"),
    ("devstral-small-24b-2505", 23.6, "mistralai/Devstral-Small-2505", "devstral:24b devstral devstral:24b-small-2505"),
    ("devstral-small-24b-2507", 23.6, "mistralai/Devstral-Small-2507"),
)  # fmt: skip

_GOOGLE = (
    ("gemma-2-2b", 2.61, "google/gemma-2-2b-it", "gemma2:2b gemma2:2b-instruct"),
    ("gemma-2-2b-base", 2.61, "google/gemma-2-2b", "gemma2:2b-text"),
    ("gemma-2-9b", 9.24, "google/gemma-2-9b-it", "gemma2:9b gemma2 gemma2:9b-instruct"),
    ("gemma-2-9b-base", 9.24, "google/gemma-2-9b", "gemma2:9b-text"),
    ("gemma-2-27b", 27.2, "google/gemma-2-27b-it", "gemma2:27b gemma2:27b-instruct"),
    ("gemma-2-27b-base", 27.2, "google/gemma-2-27b", "gemma2:27b-text"),
    ("gemma-3-270m", 0.268, "google/gemma-3-270m-it", "gemma3:270m gemma3:270m-it"),
    ("gemma-3-270m-base", 0.268, "google/gemma-3-270m google/gemma-3-270m-pt"),
    ("gemma-3-1b", 1.0, "google/gemma-3-1b-it", "gemma3:1b gemma3:1b-it"),
    ("gemma-3-1b-base", 1.0, "google/gemma-3-1b-pt"),
    ("gemma-3-1b-qat", 1.0, "google/gemma-3-1b-it-qat-q4_0-gguf", "gemma3:1b-it-qat"),
    ("gemma-3-4b", 4.3, "google/gemma-3-4b-it", "gemma3:4b gemma3 gemma3:4b-it"),
    ("gemma-3-4b-base", 4.3, "google/gemma-3-4b-pt"),
    ("gemma-3-4b-qat", 4.3, "google/gemma-3-4b-it-qat-q4_0-gguf", "gemma3:4b-it-qat"),
    ("gemma-3-12b", 12.2, "google/gemma-3-12b-it", "gemma3:12b gemma3:12b-it"),
    ("gemma-3-12b-base", 12.2, "google/gemma-3-12b-pt"),
    ("gemma-3-12b-qat", 12.2, "google/gemma-3-12b-it-qat-q4_0-gguf", "gemma3:12b-it-qat"),
    ("gemma-3-27b", 27.4, "google/gemma-3-27b-it", "gemma3:27b gemma3:27b-it"),
    ("gemma-3-27b-base", 27.4, "google/gemma-3-27b-pt"),
    ("gemma-3-27b-qat", 27.4, "google/gemma-3-27b-it-qat-q4_0-gguf", "gemma3:27b-it-qat"),
    ("gemma-3n-e2b", None, "google/gemma-3n-E2B-it", "gemma3n:e2b gemma3n:e2b-it"),
    ("gemma-3n-e4b", None, "google/gemma-3n-E4B-it", "gemma3n:e4b gemma3n gemma3n:e4b-it"),
)  # fmt: skip

_MICROSOFT = (
    ("phi-3.5-mini", 3.82, "microsoft/Phi-3.5-mini-instruct", "phi3.5:3.8b phi3.5 phi3.5:3.8b-mini-instruct"),
    ("phi-3.5-moe", 41.9, "microsoft/Phi-3.5-MoE-instruct"),
    ("phi-3.5-vision", 4.15, "microsoft/Phi-3.5-vision-instruct"),
    ("phi-4", 14.7, "microsoft/phi-4", "phi4:14b phi4"),
    ("phi-4-mini", 3.84, "microsoft/Phi-4-mini-instruct", "phi4-mini:3.8b phi4-mini"),
    ("phi-4-reasoning", 14.7, "microsoft/Phi-4-reasoning", "phi4-reasoning:14b phi4-reasoning"),
    ("phi-4-reasoning-plus", 14.7, "microsoft/Phi-4-reasoning-plus", "phi4-reasoning:plus phi4-reasoning:14b-plus"),
    ("phi-4-mini-reasoning", 3.84, "microsoft/Phi-4-mini-reasoning", "phi4-mini-reasoning:3.8b phi4-mini-reasoning"),
)  # fmt: skip

# Ollama's `deepseek-r1:8b` and `:latest` changed from a distillate of Llama 3.1 to one of Qwen 3: neither is listed.
_DEEPSEEK = (
    ("deepseek-r1-distill-qwen-1.5b", 1.78, "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1:1.5b deepseek-r1:1.5b-qwen-distill"),
    ("deepseek-r1-distill-qwen-7b", 7.62, "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1:7b deepseek-r1:7b-qwen-distill"),
    ("deepseek-r1-distill-llama-8b", 8.03, "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "deepseek-r1:8b-llama-distill"),
    ("deepseek-r1-distill-qwen-14b", 14.8, "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "deepseek-r1:14b deepseek-r1:14b-qwen-distill"),
    ("deepseek-r1-distill-qwen-32b", 32.8, "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1:32b deepseek-r1:32b-qwen-distill"),
    ("deepseek-r1-distill-llama-70b", 70.6, "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "deepseek-r1:70b deepseek-r1:70b-llama-distill"),
    ("deepseek-r1-0528-qwen3-8b", 8.19, "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-r1:8b-0528-qwen3"),
    ("deepseek-r1", 671.0, "deepseek-ai/DeepSeek-R1"),
    ("deepseek-r1-0528", 671.0, "deepseek-ai/DeepSeek-R1-0528", "deepseek-r1:671b-0528"),
    ("deepseek-v3", 671.0, "deepseek-ai/DeepSeek-V3"),
    ("deepseek-v3-0324", 671.0, "deepseek-ai/DeepSeek-V3-0324"),
    ("deepseek-v3.1", 671.0, "deepseek-ai/DeepSeek-V3.1"),
    ("deepseek-coder-v2-lite", 15.7, "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek-coder-v2:16b deepseek-coder-v2 deepseek-coder-v2:lite"),
)  # fmt: skip

_OTHERS = (
    ("smollm2-135m", 0.135, "HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2:135m smollm2:135m-instruct"),
    ("smollm2-135m-base", 0.135, "HuggingFaceTB/SmolLM2-135M"),
    ("smollm2-360m", 0.362, "HuggingFaceTB/SmolLM2-360M-Instruct", "smollm2:360m smollm2:360m-instruct"),
    ("smollm2-360m-base", 0.362, "HuggingFaceTB/SmolLM2-360M"),
    ("smollm2-1.7b", 1.71, "HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2:1.7b smollm2 smollm2:1.7b-instruct"),
    ("smollm2-1.7b-base", 1.71, "HuggingFaceTB/SmolLM2-1.7B"),
    ("smollm3-3b", 3.08, "HuggingFaceTB/SmolLM3-3B"),
    ("smollm3-3b-base", 3.08, "HuggingFaceTB/SmolLM3-3B-Base"),
    ("gpt-oss-20b", 20.9, "openai/gpt-oss-20b", "gpt-oss:20b gpt-oss"),
    ("gpt-oss-120b", 117.0, "openai/gpt-oss-120b", "gpt-oss:120b"),
    ("granite-3.3-2b", 2.53, "ibm-granite/granite-3.3-2b-instruct", "granite3.3:2b"),
    ("granite-3.3-2b-base", 2.53, "ibm-granite/granite-3.3-2b-base"),
    ("granite-3.3-8b", 8.17, "ibm-granite/granite-3.3-8b-instruct", "granite3.3:8b granite3.3"),
    ("granite-3.3-8b-base", 8.17, "ibm-granite/granite-3.3-8b-base"),
    ("olmo-2-7b-1124", 7.3, "allenai/OLMo-2-1124-7B-Instruct", "olmo2:7b olmo2 olmo2:7b-1124-instruct"),
    ("olmo-2-13b-1124", 13.7, "allenai/OLMo-2-1124-13B-Instruct", "olmo2:13b olmo2:13b-1124-instruct"),
    ("glm-4.5-air", 110.0, "zai-org/GLM-4.5-Air"),
    ("hermes-3-llama-3.1-8b", 8.03, "NousResearch/Hermes-3-Llama-3.1-8B", "hermes3:8b hermes3 hermes3:8b-llama3.1"),
    ("hermes-3-llama-3.1-70b", 70.6, "NousResearch/Hermes-3-Llama-3.1-70B", "hermes3:70b hermes3:70b-llama3.1"),
)  # fmt: skip

_EMBEDDINGS = (
    ("nomic-embed-text-v1.5", 0.137, "nomic-ai/nomic-embed-text-v1.5", "nomic-embed-text:v1.5 nomic-embed-text"),
    ("nomic-embed-text-v2-moe", 0.475, "nomic-ai/nomic-embed-text-v2-moe", "nomic-embed-text-v2-moe"),
    ("bge-m3", 0.568, "BAAI/bge-m3", "bge-m3:567m bge-m3"),
    ("bge-small-en-v1.5", 0.0334, "BAAI/bge-small-en-v1.5"),
    ("bge-base-en-v1.5", 0.109, "BAAI/bge-base-en-v1.5"),
    ("bge-large-en-v1.5", 0.335, "BAAI/bge-large-en-v1.5", "bge-large:335m bge-large bge-large:335m-en-v1.5"),
    ("mxbai-embed-large-v1", 0.335, "mixedbread-ai/mxbai-embed-large-v1", "mxbai-embed-large:335m mxbai-embed-large mxbai-embed-large:v1"),
    ("all-minilm-l6-v2", 0.0227, "sentence-transformers/all-MiniLM-L6-v2", "all-minilm:22m all-minilm all-minilm:l6-v2 all-minilm:22m-l6-v2"),
    ("all-minilm-l12-v2", 0.0334, "sentence-transformers/all-MiniLM-L12-v2", "all-minilm:33m all-minilm:l12-v2 all-minilm:33m-l12-v2"),
    ("snowflake-arctic-embed-l-v2.0", 0.568, "Snowflake/snowflake-arctic-embed-l-v2.0", "snowflake-arctic-embed2:568m snowflake-arctic-embed2"),
    ("multilingual-e5-large", 0.56, "intfloat/multilingual-e5-large"),
    ("e5-mistral-7b", 7.11, "intfloat/e5-mistral-7b-instruct"),
    ("qwen3-embedding-0.6b", 0.596, "Qwen/Qwen3-Embedding-0.6B", "qwen3-embedding:0.6b"),
    ("qwen3-embedding-4b", 4.02, "Qwen/Qwen3-Embedding-4B", "qwen3-embedding:4b"),
    ("qwen3-embedding-8b", 7.57, "Qwen/Qwen3-Embedding-8B", "qwen3-embedding:8b qwen3-embedding"),
    ("embeddinggemma-300m", 0.308, "google/embeddinggemma-300m", "embeddinggemma:300m embeddinggemma"),
)  # fmt: skip

KNOWN_MODELS: tuple[KnownModel, ...] = tuple(
    KnownModel(*row)
    for rows in (_LLAMA, _QWEN, _MISTRAL, _GOOGLE, _MICROSOFT, _DEEPSEEK, _OTHERS, _EMBEDDINGS)
    for row in rows
)

_REPACKERS = """
    NousResearch QuantFactory MaziyarPanahi RedHatAI TheBloke bartowski casperhansen ggml-org hugging-quants
    lmstudio-community mlx-community mradermacher neuralmagic nm-testing nvidia second-state solidrust unsloth
""".split()  # noqa: SIM905 (reads as one list)
"""Organisations that publish the makers' weights in other formats under the makers' names. Others may publish a
fine-tune under the name of its origin, so an id of theirs is a model of its own."""

TRUSTED_PUBLISHERS = frozenset(
    publisher.lower()
    for publisher in (
        *_REPACKERS,
        *(hf.split("/")[0] for model in KNOWN_MODELS for hf in model.hugging_face.split() if "/" in hf),
    )
)

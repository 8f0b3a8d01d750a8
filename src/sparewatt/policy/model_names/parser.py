"""Reads what a model server calls a model: a Hugging Face id, an Ollama tag, a GGUF file, an id of LM Studio or vLLM.

Three rules, the first that applies: a name of the network is itself; an id that the shipped table has gets the table's
name; of an id that states a size, what says only how it is stored (directory, file ending, quantization) is left out.
Any other id is its own name, unchanged. Whole ids are compared, never parts of them: an id with a word more than a
known one (a fine-tune, a distillate) is another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from sparewatt.core.limits import WORDS_REMEMBERED_MAX
from sparewatt.policy.model_names.known_models import KNOWN_MODELS, TRUSTED_PUBLISHERS, KnownModel
from sparewatt.policy.quantization import UNKNOWN, quantization_of

_ENDINGS_MAX = 8
"""Words about storage at the end of an id; `…-quantized.w4a16-GGUF` has three."""

_QUANTIZATION = (
    r"[it]?q[1-8](?:_(?:[01]|k|nl|xxs|xs|s|m|l|xl|[48])){0,3}"
    r"|b?f(?:p|loat)?(?:16|32)|fp[48]|(?:mx|nv)fp4|int[2-8]|w\d+a\d+|[2-8]bit|awq|gptq"
)
_PACKING = r"gguf|ggml|exl2|exl3|mlx|bnb|unsloth|ud|i1|imat|imatrix|quantized|dynamic|marlin|g128|mxfp4_moe"
_STORED_AS = re.compile(
    rf"[-._@: ](?P<word>{_QUANTIZATION}|{_PACKING}|(?<=:)latest|\d{{5}}-of-\d{{5}})$", re.IGNORECASE
)
_QUANTIZATION_WORD = re.compile(_QUANTIZATION, re.IGNORECASE)
_FILE_ENDING = re.compile(r"\.(?:gguf|ggml|bin|safetensors)$", re.IGNORECASE)
_PATH_BEGINS = re.compile(r"[/~.\\]|[A-Za-z]:[/\\]")
_CACHE_FOLDER = re.compile(r"(?:^|[/\\])models--(?P<publisher>[^/\\]+?)--(?P<name>[^/\\]+)")
"""How Hugging Face's cache names the folder of a model, which vLLM reports if it was given the folder."""
_REGISTRY = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co|registry\.ollama\.ai|ollama\.com)/", re.IGNORECASE)
_LIBRARY = "library/"
"""Ollama's own publisher."""
_SIZE = re.compile(r"(?:^|[-_.:])(?P<experts>\d+x)?(?P<count>\d+(?:\.\d+)?)(?P<unit>[bm])(?=$|[-_.:])", re.IGNORECASE)
_LETTER_HYPHEN_DIGIT = re.compile(r"(?<=[a-z])-(?=\d)")


class ModelIdentity(NamedTuple):
    """What an id says."""

    name: str
    """The network's name of the model."""
    quantization: str | None = None
    """As the id has it: `Q4_K_M`, `awq`."""
    billions: float | None = None
    """Parameters: by the table, else by the id's own words."""
    is_known: bool = False
    """Whether the shipped table has it."""


class NameParts(NamedTuple):
    family: str
    size: str | None
    variant: str
    """`instruct` if the name says nothing else."""


@lru_cache(maxsize=WORDS_REMEMBERED_MAX)
def identify(model_id: str) -> ModelIdentity:
    """The model behind an id. Never fails: an id that says nothing is its own name."""
    plain, suffix = _without_quantization_suffix(model_id)
    if plain in _BY_NAME:
        return _known(_BY_NAME[plain], suffix)
    publisher, stem, is_file = _located(model_id)
    stem, words = _without_storage(stem)
    quantization = _first_quantization(words)
    known = _look_up(publisher, stem, is_file=is_file or bool(words and not suffix))
    if known is not None:
        return _known(known, quantization)
    size = next(_sizes_of(stem), None)
    if size is None or not (is_file or quantization):
        return ModelIdentity(model_id)
    return ModelIdentity(f"{publisher}/{stem}" if publisher else stem, quantization, _billions_of(size))


def aliases_of(name: str) -> tuple[str, ...]:
    """Well-known ids of a model that clients may use instead of its name."""
    known = _BY_NAME.get(name)
    return known.aliases if known is not None else ()


def is_known_name(name: str) -> bool:
    """Whether it is a name of the shipped table, and so no alias of anything else."""
    return name in _BY_NAME


def name_parts(name: str) -> NameParts:
    """A name of the network in its parts: `qwen2.5-coder-7b-base` is the 7B base model of the family qwen2.5-coder."""
    size = next(_sizes_of(name), None)
    if size is None:
        return NameParts(name, None, "instruct")
    return NameParts(
        name[: size.start()], size[0].strip("-_.:").lower(), name[size.end() :].lstrip("-_.:") or "instruct"
    )


def split_quantization(name: str) -> tuple[str, str | None]:
    """`llama-3.1-8b:q8_0` is the model and `q8_0`. A suffix that is no quantization stays in the name."""
    return _without_quantization_suffix(name)


def without_directories(model_id: str) -> str:
    """What strangers may see of a server's id: of a path, which may name its owner, the last part."""
    return _last_part(model_id) if _PATH_BEGINS.match(model_id) else model_id


# the pieces of an id


def _without_quantization_suffix(model_id: str) -> tuple[str, str | None]:
    at = max(model_id.rfind(":"), model_id.rfind("@"))
    suffix = model_id[at + 1 :]
    if at <= 0 or not _QUANTIZATION_WORD.fullmatch(suffix):
        return model_id, None
    return model_id[:at], suffix


def _located(model_id: str) -> tuple[str | None, str, bool]:
    """Publisher, name, and whether the id is that of a file or folder, whose directories say nothing."""
    cached = _CACHE_FOLDER.search(model_id)
    if cached is not None:
        return cached["publisher"], cached["name"], False
    plain = _REGISTRY.sub("", model_id).removeprefix(_LIBRARY)
    if _PATH_BEGINS.match(plain) or _FILE_ENDING.search(plain):
        return None, _without_publisher(_FILE_ENDING.sub("", _last_part(plain))), True
    publisher, slash, name = plain.rpartition("/")
    return (publisher if slash else None), name, False


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _without_publisher(name: str) -> str:
    """Some name a file `meta-llama_Llama-3.1-8B-Instruct`, its publisher included."""
    publisher, underscore, rest = name.partition("_")
    return rest if underscore and rest and publisher.lower() in TRUSTED_PUBLISHERS else name


def _without_storage(stem: str) -> tuple[str, list[str]]:
    """The name without its last words about format and quantization, and these words, the last first."""
    words: list[str] = []
    for _ in range(_ENDINGS_MAX):
        found = _STORED_AS.search(stem)
        if found is None or not found.start():
            break
        words.append(found["word"])
        stem = stem[: found.start()]
    return stem, words


def _first_quantization(words: Iterable[str]) -> str | None:
    known = [word for word in words if quantization_of(word) != UNKNOWN]
    return known[-1] if known else None


def _sizes_of(text: str) -> Iterator[re.Match[str]]:
    return _SIZE.finditer(text)


def _billions_of(size: re.Match[str]) -> float | None:
    """None for experts, which share some of their layers."""
    if size["experts"]:
        return None
    return float(size["count"]) * (1.0 if size["unit"].lower() == "b" else 1e-3)


# the table


def _key(text: str) -> str:
    """The same for `Llama-3.1`, `llama3.1` and `llama_3.1`."""
    return _LETTER_HYPHEN_DIGIT.sub("", text.lower().replace("_", "-").replace(" ", "-"))


def _look_up(publisher: str | None, stem: str, *, is_file: bool) -> KnownModel | None:
    """Hugging Face names a base model by its bare name, Ollama never: a file or publisher means the former."""
    if publisher is not None and publisher.lower() not in TRUSTED_PUBLISHERS:
        return None
    if publisher is None and not is_file and stem in _BY_NAME:
        return _BY_NAME[stem]
    if publisher is None and stem.lower() in _BY_TAG:
        return _BY_TAG[stem.lower()]
    return _BY_STEM.get(_key(stem))


def _known(model: KnownModel, quantization: str | None) -> ModelIdentity:
    return ModelIdentity(model.name, quantization, model.billions, is_known=True)


def _stems(model: KnownModel) -> Iterable[str]:
    for hugging_face in model.hugging_face.split():
        yield _key(_without_storage(hugging_face.rpartition("/")[2])[0])


_BY_NAME = {model.name: model for model in KNOWN_MODELS}
_BY_TAG = {tag: model for model in KNOWN_MODELS for tag in model.ollama.split()}
_BY_STEM = {_key(model.name): model for model in KNOWN_MODELS} | {
    stem: model for model in KNOWN_MODELS for stem in _stems(model)
}

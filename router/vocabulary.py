"""The model's tokenizer and the ids that end a reply.

Invariant: the ids are those that vLLM uses for the same directory: the tokenizer's ``eos_token`` ends a reply
with no ``stop_reason``, every other ``eos_token_id`` of the generation config with its id as ``stop_reason``
(``SamplingParams.update_from_generation_config``, vllm/sampling_params.py).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from router.errors import NotConfigured

__all__ = ["Vocabulary"]

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_DEFAULTS = (*_PENALTIES, "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
_RENAMED = {"max_new_tokens": "max_tokens"}


class Vocabulary:
    """Tokenizer and end ids of one model directory.

    ``eos``: the tokenizer's end id, if any. ``stops``: further end ids. ``added``: contents of added tokens
    by id. ``directory``: where they were read from. ``defaults``: sampling parameters of the generation config, as
    vLLM takes them (``--generation-config auto``; vllm/config/model.py, ``get_diff_sampling_param``).

    Raises:
        NotConfigured: the directory holds no tokenizer that can be read.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = where = Path(directory)
        try:
            self.tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
        except Exception as error:  # the tokenizers package raises bare Exceptions
            raise NotConfigured(
                f"tokenizer = {str(where)!r}: tokenizer.json cannot be read ({error}); set "
                "`tokenizer` of the router "
                f"to the model's directory"
            ) from error
        self._space = _space_sign(json.loads(self.tokenizer.to_str()).get("pre_tokenizer") or {})
        added = self.tokenizer.get_added_tokens_decoder()
        self.added: dict[int, str] = {token_id: token.content for token_id, token in added.items()}
        end = _read(where / "tokenizer_config.json").get("eos_token")
        if isinstance(end, dict):
            end = end.get("content")
        self.eos: int | None = self.tokenizer.token_to_id(end) if isinstance(end, str) else None
        source = where / "generation_config.json"
        generation = _read(source)
        self.defaults: dict[str, object] = {
            _RENAMED.get(name, name): generation[name] for name in _DEFAULTS if generation.get(name) is not None
        }
        ends = _read(source if source.exists() else where / "config.json").get("eos_token_id")
        all_ends = [ends] if isinstance(ends, int) else list(ends or [])
        self.stops: tuple[int, ...] = tuple(each for each in all_ends if each != self.eos)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones included."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))

    def text(self, token: int) -> str:
        """Text of a token on its own, with the leading spaces that a decoder of whole texts drops
        (vllm/tokenizers/detokenizer_utils.py, ``convert_ids_list_to_tokens``)."""
        text = self.decode([token])
        if self._space is None:
            return text
        raw = self.tokenizer.id_to_token(token) or ""
        spaces = len(raw) - len(raw.lstrip(self._space))
        return " " * max(0, spaces - (len(text) - len(text.lstrip(" ")))) + text


def _space_sign(pre_tokenizer: dict[str, Any]) -> str | None:
    """What stands for a space in the tokens of a SentencePiece model."""
    steps = pre_tokenizer.get("pretokenizers", []) if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    found = (str(step.get("replacement", "\u2581")) for step in steps if step.get("type") == "Metaspace")
    return next(found, None)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

"""The model's tokenizer and the ids that end a reply.

Invariant: the ids are those that vLLM uses for the same directory: the tokenizer's ``eos_token`` ends a reply
with no ``stop_reason``, every other ``eos_token_id`` of the generation config with its id as ``stop_reason``
(``SamplingParams.update_from_generation_config``, vllm/sampling_params.py).
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from router.errors import NotConfigured

__all__ = ["Vocabulary"]


class Vocabulary:
    """Tokenizer and end ids of one model directory.

    ``eos``: the tokenizer's end id, if any. ``stops``: further end ids. ``added``: contents of added tokens
    by id.

    Raises:
        NotConfigured: the directory holds no tokenizer that can be read.
    """

    def __init__(self, directory: str | Path) -> None:
        where = Path(directory)
        try:
            self.tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
        except Exception as error:  # the tokenizers package raises bare Exceptions
            raise NotConfigured(
                f"tokenizer = {str(where)!r}: tokenizer.json cannot be read ({error}); set "
                "`tokenizer` of the router "
                f"to the model's directory"
            ) from error
        added = self.tokenizer.get_added_tokens_decoder()
        self.added: dict[int, str] = {token_id: token.content for token_id, token in added.items()}
        end = _read(where / "tokenizer_config.json").get("eos_token")
        if isinstance(end, dict):
            end = end.get("content")
        self.eos: int | None = self.tokenizer.token_to_id(end) if isinstance(end, str) else None
        source = where / "generation_config.json"
        ends = _read(source if source.exists() else where / "config.json").get("eos_token_id")
        all_ends = [ends] if isinstance(ends, int) else list(ends or [])
        self.stops: tuple[int, ...] = tuple(each for each in all_ends if each != self.eos)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

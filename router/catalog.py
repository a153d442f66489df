"""What the prefill servers serve: model names and the vocabulary.

Invariant: a name that is not known to be a base model never reaches a decode node, for those hold no
adapters.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from router.errors import NotConfigured
from router.prefill import Card, Prefill
from router.vocabulary import Vocabulary

__all__ = ["Catalog"]


class Catalog:
    """Models and vocabulary, fetched when first needed. ``directory``: the configured model directory, if
    any.
    """

    def __init__(self, prefill: Prefill, directory: str | None) -> None:
        self._prefill = prefill
        self._directory = directory
        self._cards: dict[str, Card] = {}
        self._vocabulary: Vocabulary | None = None
        self._loading = asyncio.Lock()

    async def is_base(self, url: str, model: object, headers: Mapping[str, str]) -> bool:
        """Whether ``model`` names no adapter; asks the server at ``url`` about names that are new."""
        if not model:
            return True
        if model not in self._cards:
            self._cards = {card.id: card for card in await self._prefill.models(url, headers)}
        card = self._cards.get(str(model))
        return card is not None and card.parent is None

    async def longest(self, url: str, headers: Mapping[str, str]) -> int:
        """The most tokens that the server's model takes.

        Raises:
            NotConfigured: the server does not say.
        """
        found = next((card.max_model_len for card in await self._prefill.models(url, headers)), None)
        if found is None:
            raise NotConfigured(f"prefill server {url} names no max_model_len; start it with --enable-scale-out")
        return found

    async def vocabulary(self, url: str, headers: Mapping[str, str]) -> Vocabulary:
        """The model's vocabulary.

        Raises:
            NotConfigured: no directory is configured and the server names none that is on this machine.
        """
        async with self._loading:
            if self._vocabulary is None:
                directory = self._directory or await self._root(url, headers)
                self._vocabulary = await asyncio.to_thread(Vocabulary, directory)
            return self._vocabulary

    async def _root(self, url: str, headers: Mapping[str, str]) -> str:
        cards = await self._prefill.models(url, headers)
        root = next((card.root for card in cards if card.parent is None and card.root), None)
        if root is None or not Path(root).is_dir():
            raise NotConfigured(
                f"prefill server {url} serves {root!r}, which is no directory here; set "
                "`tokenizer` of the router to "
                f"the model's directory"
            )
        return root

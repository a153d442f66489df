"""From a request to token ids and resolved sampling parameters, on whatever server there is.

Invariant: a server is asked in the way that it is known to answer, and in the better one first.
"""

from multidict import CIMultiDict

from router.body import Body
from router.catalog import Catalog
from router.errors import NotConfigured, PassedThrough, Unable
from router.prefill import Prefill
from router.rendered import Rendered
from router.tokenized import Unresolved, chat_order, read, resolve

__all__ = ["Renderer"]

SESSION = "x-session-id"


class Renderer:
    """Renders prompts."""

    def __init__(self, prefill: Prefill, catalog: Catalog) -> None:
        self._prefill = prefill
        self._catalog = catalog

    async def render(self, url: str, path: str, body: Body, headers: CIMultiDict[str]) -> list[Rendered]:
        """One for each prompt of a request to ``path``; see ``Prefill.render``. The session that the body names
        goes into ``headers``, where every endpoint of vLLM reads it.

        Raises:
            Unable: the server has no render endpoint, and this request cannot be rendered without it.
        """
        session = body.get("session_id")
        if isinstance(session, str) and session and session.isascii() and session.isprintable():
            headers[SESSION] = session
        if self._prefill.scales_out(url):
            try:
                return await self._prefill.render(url, path, body, headers)
            except NotConfigured:
                pass
        if body.fields is None:
            raise Unable("body")
        asked = read(path, body)
        ids, longest = await self._ids(url, asked, headers)
        vocabulary = await self._catalog.vocabulary(url, headers)
        return [resolve(asked, ids, longest, vocabulary.defaults, headers.get("x-request-id", ""))]

    async def _ids(self, url: str, asked: Unresolved, headers: CIMultiDict[str]) -> tuple[list[int], int]:
        prompt = asked.fields[asked.prompt]
        if not asked.chat and isinstance(prompt, list):
            return list(prompt), await self._catalog.longest(url, headers)
        names = ("model", "prompt", "add_special_tokens")
        order = (
            chat_order(asked) if asked.chat else {name: asked.fields[name] for name in names if name in asked.fields}
        )
        try:
            found = await self._prefill.tokenize(url, order, headers)
        except PassedThrough as error:
            if error.code == 400:  # its words are those of another endpoint
                raise Unable(asked.prompt) from error
            raise
        return found.tokens, found.max_model_len

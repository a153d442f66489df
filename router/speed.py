"""The speed tier: prefill on vLLM, decode on a decode node, one reply.

Invariant (R1): what a decode node cannot do is found out before it is asked: in the request's fields, and
again in the sampling parameters that vLLM resolved from them and from the model's defaults.
"""

import time
from collections.abc import Sequence

from aiohttp import web
from multidict import CIMultiDict

from router.call import Call
from router.catalog import Catalog
from router.config import RouterConfig
from router.delivery import Delivery
from router.detokenizer import Detokenizer
from router.errors import BadRequest, Busy, PeerBroken, PeerTimeout, Unable
from router.fields import DECODED, unable, unable_resolved
from router.fleet import Ask, Fleet
from router.headers import onward
from router.native.server import Server
from router.node import Node
from router.outlet import Outlet
from router.parsers import Parsers, ReplyParser
from router.prefill import FirstToken, Rendered
from router.render import Renderer
from router.reply import Form, Names
from router.transaction import Sources, Transaction
from router.transcript import Transcript
from router.vocabulary import Vocabulary

__all__ = ["SpeedPath"]


class SpeedPath:
    """Serves requests of classes whose pool is ``speed``."""

    def __init__(self, config: RouterConfig, sources: Sources) -> None:
        self._role = config.response_role
        self._patience_s = config.timeouts.client
        self._sources = sources
        self._catalog = Catalog(sources.prefill, config.tokenizer)
        self._renderer = Renderer(sources.prefill, self._catalog)
        self._parsers = Parsers(config)

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answer a request.

        Raises:
            ApiError: it failed before the first byte; with a ``detour``, the native pool may serve it.
            ConnectionResetError: the client has gone.
        """
        if field := unable(call.body, self._parsers.names):
            raise Unable(field)
        nodes = await self._fleet.awake(patient=not self._detours(call))
        headers = onward(call.request)
        headers.popall("accept-encoding", None)
        with call.record.phase("render"):
            rendered, vocabulary = await self._rendered(call, headers, nodes)
            parser = await self._parsers.open(call.body, rendered, vocabulary) if call.endpoint.chat else None
        # Both legs carry one id, the client's own or the one that the reply will have.
        headers.setdefault("x-request-id", rendered.request_id.partition("-")[2])
        prompt = len(rendered.token_ids)
        asked = any(call.body.get(name) is not None for name in call.endpoint.lengths)
        new = self._fleet.clamp(nodes, prompt, rendered.max_tokens, asked)
        sampling = _sampling(vocabulary, rendered)
        legs = Transaction(
            self._sources,
            rendered,
            self._ask(call, rendered, new),
            sampling,
            headers,
            call.record,
            may_go_native=call.traffic.fallback == "native",
        )
        try:
            first = await self._first(call, legs)  # refuses ids that are no token's, in the server's words
            transcript = _transcript(vocabulary, rendered, new, sampling)
            form = self._form(call, legs, rendered, first, parser, _names(call, rendered, vocabulary))
            reply = call.endpoint.shape(form)
            delivery = Delivery(call, legs, transcript, reply, logprobs=rendered.logprobs is not None)
            if rendered.stream:
                return await delivery.stream(first, Outlet(call, self._patience_s))
            return await delivery.whole(first)
        finally:
            call.record.completion_tokens = call.record.delivered
            legs.end()

    @property
    def _fleet(self) -> Fleet:
        return self._sources.fleet

    def _ask(self, call: Call, rendered: Rendered, new: int) -> Ask:
        keys = self._fleet.affinity.keys(
            call.request.headers, call.body.get("prompt_cache_key"), rendered.cache_salt, rendered.token_ids
        )
        detours = self._detours(call)
        return Ask(
            queue=call.traffic.name,
            prompt=len(rendered.token_ids),
            new=new,
            keys=keys,
            wait_s=call.traffic.fallback_wait_s if detours else None,
            patient=not detours,
        )

    def _detours(self, call: Call) -> bool:
        """Whether the native pool can serve the request when the speed tier cannot."""
        return call.traffic.fallback == "native" and bool(self._sources.native.servers)

    async def _first(self, call: Call, legs: Transaction) -> FirstToken:
        try:
            return await legs.first()
        except Busy as error:
            if call.traffic.fallback_wait_s is not None:
                error.detour = "wait"
            raise

    async def _rendered(
        self, call: Call, headers: CIMultiDict[str], nodes: Sequence[Node]
    ) -> tuple[Rendered, Vocabulary]:
        """The prompt as tokens; a server that cannot be reached is tried no more than once."""
        tried: list[Server] = []
        while True:
            with self._sources.prefills.use(without=tried) as server:
                try:
                    rendered = await self._render(call, server.url, headers, nodes)
                    return rendered, await self._catalog.vocabulary(server.url, headers)
                except (PeerBroken, PeerTimeout) as error:
                    tried.append(server)
                    server.health.failed(error.message)
                    error.detour = "health"
                    left = [each for each in self._sources.prefills.servers if each not in tried and not each.draining]
                    if len(tried) > 1 or not left:
                        raise

    async def _render(self, call: Call, url: str, headers: CIMultiDict[str], nodes: Sequence[Node]) -> Rendered:
        found = await self._renderer.render(url, call.endpoint.path, call.body, headers)
        if call.body.fields is None:
            raise BadRequest("The request body is not a JSON object in UTF-8; send one.")
        if len(found) != 1:
            raise Unable("prompt")
        rendered = found[0]
        call.record.request_id = rendered.request_id
        call.record.prompt_tokens = len(rendered.token_ids)
        call.record.stream = bool(rendered.stream)
        known = [node.capabilities.sampling for node in nodes if node.capabilities is not None]
        if field := unable_resolved(rendered.sampling_params, frozenset.intersection(*known)):
            raise Unable(field)
        if rendered.multimodal:
            raise Unable("messages")
        if call.endpoint.chat:
            self._parsers.check(rendered)
        if not await self._catalog.is_base(url, rendered.model, headers):
            raise Unable("model")
        return rendered

    def _form(
        self,
        call: Call,
        legs: Transaction,
        rendered: Rendered,
        first: FirstToken,
        parser: ReplyParser | None,
        names: Names | None,
    ) -> Form:
        options = rendered.stream_options
        usage = bool(options and options.include_usage)
        role = self._role
        if call.body.get("add_generation_prompt") is False:
            # vLLM then continues the last message, whoever speaks in it (get_chat_request_role).
            messages = call.body.get("messages")
            role = messages[-1]["role"] if isinstance(messages, list) else role
        return Form(
            id=rendered.request_id,
            model=first.model,
            created=int(time.time()),
            fingerprint=legs.fingerprint,
            prompt=rendered.token_ids,
            role=role,
            details=first.prompt_tokens_details,
            usage=usage,
            running_usage=usage and bool(options and options.continuous_usage_stats),
            show_ids=call.body.get("return_token_ids") is True,
            names=names,
            parser=parser,
            service_tier=call.service_tier,
        )


def _names(call: Call, rendered: Rendered, vocabulary: Vocabulary) -> Names | None:
    if rendered.logprobs is None:
        return None
    return Names(vocabulary, rendered.logprobs, as_ids=call.body.get("return_tokens_as_token_ids") is True)


def _sampling(vocabulary: Vocabulary, rendered: Rendered) -> dict[str, object]:
    """The decode node's ``sampling``: what was resolved, and the ids that end a reply of this model."""
    params = rendered.sampling_params
    sampling: dict[str, object] = {
        name: params[name] for name in DECODED if params.get(name) is not None and name in params
    }
    sampling["temperature"] = params.get("temperature", 1.0)
    stops = params.get("stop_token_ids")
    own = list(stops) if isinstance(stops, list) else []
    if params.get("ignore_eos"):
        ends: list[int] = []
    else:
        ends = [] if vocabulary.eos is None else [vocabulary.eos]
        own += [each for each in vocabulary.stops if each not in own]
    return {**sampling, "stop_token_ids": own, "eos_token_ids": ends}


def _transcript(vocabulary: Vocabulary, rendered: Rendered, new: int, sampling: dict[str, object]) -> Transcript:
    params = rendered.sampling_params
    stop = params.get("stop") or ()
    keep_stop = bool(params.get("include_stop_str_in_output", False))
    detokenizer = Detokenizer(
        vocabulary,
        rendered.token_ids,
        stop=[stop] if isinstance(stop, str) else list(stop),  # type: ignore[call-overload]
        keep_stop=keep_stop,
        skip_special=bool(params.get("skip_special_tokens", True)),
        space_special=bool(params.get("spaces_between_special_tokens", True)),
    )
    return Transcript(
        detokenizer,
        eos=sampling["eos_token_ids"],  # type: ignore[arg-type]
        stops=sampling["stop_token_ids"],  # type: ignore[arg-type]
        max_tokens=new,
        keep_stop=keep_stop,
    )

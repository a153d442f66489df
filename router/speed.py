"""The speed tier: prefill on vLLM, decode on a decode node, one reply.

Invariant (R1): what a decode node cannot do is found out before it is asked: in the request's fields, and
again in the sampling parameters that vLLM resolved from them and from the model's defaults.
"""

import time
from collections.abc import Sequence

from aiohttp import web
from multidict import CIMultiDict

from router.attempt import Attempt
from router.call import Call
from router.catalog import Catalog
from router.config import RouterConfig
from router.delivery import Delivery
from router.detokenizer import Detokenizer
from router.errors import BadRequest, Unable
from router.fields import DECODED, unable, unable_resolved
from router.fleet import Fleet
from router.headers import onward, traced
from router.node import Node
from router.outlet import Outlet
from router.pool import Pool
from router.prefill import FirstToken, Prefill, Rendered
from router.reply import Form
from router.transcript import Transcript
from router.vocabulary import Vocabulary

__all__ = ["SpeedPath"]


class SpeedPath:
    """Serves requests of classes whose pool is ``speed``."""

    def __init__(self, config: RouterConfig, pool: Pool, prefill: Prefill, fleet: Fleet) -> None:
        self._role = config.response_role
        self._timeouts = config.timeouts
        self._pool = pool
        self._prefill = prefill
        self._fleet = fleet
        self._catalog = Catalog(prefill, config.tokenizer)

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answer a request.

        Raises:
            Unable: the speed tier cannot execute it; nothing has been sent.
            ApiError: it failed before the first byte.
            ConnectionResetError: the client has gone.
        """
        if field := unable(call.body):
            raise Unable(field)
        nodes = await self._fleet.awake()
        with self._pool.use() as url:
            headers = onward(call.request.headers)
            headers.popall("accept-encoding", None)
            with call.record.phase("render"):
                rendered = await self._render(call, url, headers, nodes)
                vocabulary = await self._catalog.vocabulary(url, headers)
            # Both legs carry one id, the client's own or the one that the reply will have.
            headers.setdefault("x-request-id", rendered.request_id.partition("-")[2])
            prompt = len(rendered.token_ids)
            asked = any(call.body.get(name) is not None for name in call.endpoint.lengths)
            new = self._fleet.clamp(nodes, prompt, rendered.max_tokens, asked)
            sampling = _sampling(vocabulary, rendered)
            transcript = _transcript(vocabulary, rendered, new, sampling)
            with call.record.phase("queue"):
                lease = await self._fleet.lease(prompt, new)
            attempt = Attempt(self._fleet, lease, self._timeouts)
            call.record.node = attempt.node.name
            try:
                with call.record.phase("prefill"):
                    first = await self._prefill.first_token(url, rendered, attempt.offer(prompt), headers)
                reply = call.endpoint.shape(self._form(call, attempt.node, rendered, first))
                order = {"max_tokens": new - 1, "sampling": sampling, "timeout_s": self._timeouts.handoff}
                delivery = Delivery(call, attempt, transcript, reply, order, traced(headers))
                if rendered.stream:
                    return await delivery.stream(first, Outlet(call, self._timeouts.client))
                return await delivery.whole(first)
            finally:
                call.record.completion_tokens = transcript.count
                attempt.end()

    async def _render(self, call: Call, url: str, headers: CIMultiDict[str], nodes: Sequence[Node]) -> Rendered:
        found = await self._prefill.render(url, call.endpoint.path, call.body, headers)
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
        if rendered.reasoning_parser_kwargs is not None:
            raise Unable("reasoning_parser")
        if not await self._catalog.is_base(url, rendered.model, headers):
            raise Unable("model")
        return rendered

    def _form(self, call: Call, node: Node, rendered: Rendered, first: FirstToken) -> Form:
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
            fingerprint=node.fingerprint,
            prompt=rendered.token_ids,
            role=role,
            details=first.prompt_tokens_details,
            usage=usage,
            running_usage=usage and bool(options and options.continuous_usage_stats),
            show_ids=call.body.get("return_token_ids") is True,
        )


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

"""Text, stop strings and ends of a reply, against vLLM's own detokenizer and against plain cases (R8)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from router.detokenizer import Detokenizer
from router.errors import NotConfigured
from router.transcript import Delta, Transcript
from router.vocabulary import Vocabulary

pytestmark = pytest.mark.contract("R8")


@pytest.fixture(scope="module")
def vocabulary(model_dir: Path) -> Vocabulary:
    return Vocabulary(model_dir)


def make(vocabulary: Vocabulary, prompt: list[int] | None = None, **given: Any) -> Transcript:
    keep = given.get("keep_stop", False)
    detokenizer = Detokenizer(vocabulary, prompt or [40], stop=given.get("stop", ()), keep_stop=keep)
    return Transcript(
        detokenizer,
        eos=given.get("eos", [2]),
        stops=given.get("stops", [0]),
        max_tokens=given.get("max_tokens", 100),
        keep_stop=keep,
    )


def test_the_end_ids_are_those_of_the_directory(vocabulary: Vocabulary) -> None:
    assert (vocabulary.eos, vocabulary.stops) == (2, (0,))
    assert vocabulary.added == {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>"}


def test_config_json_stands_in_for_a_missing_generation_config(model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((model_dir / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|im_end|>"}}')
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    assert (Vocabulary(tmp_path).eos, Vocabulary(tmp_path).stops) == (2, (0,))
    with pytest.raises(NotConfigured, match=r"tokenizer\.json"):
        Vocabulary(tmp_path / "nowhere")


def test_an_end_id_ends_the_reply_without_its_text(vocabulary: Vocabulary) -> None:
    transcript = make(vocabulary)
    assert transcript.feed([50]).finish_reason is None
    assert transcript.feed([2, 51, 52]) == Delta("", [2], "stop", None)
    assert transcript.count == 2


def test_a_stop_id_is_the_reason(vocabulary: Vocabulary) -> None:
    assert make(vocabulary, stops=[51]).feed([51]) == Delta("", [51], "stop", 51)


def test_an_end_id_goes_before_the_length(vocabulary: Vocabulary) -> None:
    assert make(vocabulary, max_tokens=1).feed([2]).finish_reason == "stop"
    assert make(vocabulary, max_tokens=1, eos=[], stops=[]).feed([2]).finish_reason == "length"


def test_text_that_may_begin_a_stop_string_is_held_back(vocabulary: Vocabulary) -> None:
    ids = vocabulary.tokenizer.encode("abcdefgh").ids
    transcript = make(vocabulary, stop=["gh!"], max_tokens=len(ids))
    texts = [transcript.feed([each]).text for each in ids]
    assert "".join(texts[:-1]) == "abcdef"[: len("".join(texts[:-1]))] and "".join(texts) == "abcdefgh"
    assert len("".join(texts[:-1])) == len("abcdefgh"[: -len(vocabulary.tokenizer.decode(ids[-1:]))]) - 2


@pytest.mark.parametrize(("keep", "text"), [(False, "ab"), (True, "abcd")])
def test_a_stop_string_over_several_tokens(vocabulary: Vocabulary, keep: bool, text: str) -> None:
    ids = [vocabulary.tokenizer.token_to_id(each) for each in "abcdef"]
    transcript = make(vocabulary, stop=["cd", "zz"], keep_stop=keep)
    deltas = [transcript.feed([each]) for each in ids[:4]]
    assert "".join(delta.text for delta in deltas) == text
    assert deltas[-1][1:4] == ([ids[3]], "stop", "cd") and transcript.by_text


def test_an_id_that_is_none_adds_no_text(vocabulary: Vocabulary) -> None:
    transcript = make(vocabulary)
    assert transcript.feed([2**40]).text == "" and transcript.count == 1
    assert transcript.feed([50]).text != ""


STOPS = ["o", "the ", "é", "🎉", "日本", "ox j", "<|", "\ufffd", "xyzzy"]
# Of a vocabulary that spells in bytes: those of 🎉, 日 and é, whole and in pieces.
BYTES = st.sampled_from([3 + byte for byte in "🎉日é".encode()])


def flat(steps: list[list[int | list[int]]]) -> list[list[int]]:
    """Steps whose runs of bytes are tokens like others."""
    return [[one for each in step for one in (each if isinstance(each, list) else [each])] for step in steps]


class Oracle:
    """vLLM's scheduler and output processor around its detokenizer, for one request."""

    def __init__(self, vocabulary: Vocabulary, prompt: list[int], **params: Any) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

        sampling = SamplingParams(**params)
        request = SimpleNamespace(request_id="r", prompt_token_ids=prompt, sampling_params=sampling)
        tokenizer: Any = SimpleNamespace(_tokenizer=vocabulary.tokenizer)
        self._detokenizer = FastIncrementalDetokenizer(tokenizer, request)  # type: ignore[arg-type]
        self._max_tokens = sampling.max_tokens
        self._count = 0

    def feed(self, ids: list[int]) -> Delta:
        reason: str | None = None
        why: int | str | None = None
        kept: list[int] = []
        for token in ids:
            kept.append(token)
            self._count += 1
            if token == 2:
                reason = "stop"
            elif token == 0:
                reason, why = "stop", 0
            elif self._count >= self._max_tokens:
                reason = "length"
            if reason:
                break
        before = self._detokenizer.num_output_tokens()
        if (matched := self._detokenizer.update(kept, reason == "stop")) is not None:
            reason, why = "stop", matched
        kept = kept[: self._detokenizer.num_output_tokens() - before]
        return Delta(self._detokenizer.get_next_output_text(reason is not None, True), kept, reason, why)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """A vocabulary of SentencePiece's kind: spaces are a sign, and what it has no piece for is spelt in bytes."""
    where = tmp_path_factory.mktemp("pieces")
    sign = "\u2581"
    words = [f"{sign}{word}" for word in ("the", "fox", "o", "jumps", "", sign)]
    words += "thefoxj.,! é日"
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(
        models.BPE({token: at for at, token in enumerate(dict.fromkeys(tokens))}, [], byte_fallback=True)
    )
    tokenizer.add_special_tokens(tokens[:3])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps = [decoders.Replace(sign, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.save(str(where / "tokenizer.json"))
    (where / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    return Vocabulary(where)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["vocabulary", "pieces"])
def test_it_does_what_vllm_does(kind: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("vllm")
    vocabulary: Vocabulary = request.getfixturevalue(kind)
    top = vocabulary.tokenizer.get_vocab_size() - 1
    ids = st.one_of(st.integers(0, 3), st.integers(3, top), st.lists(BYTES, min_size=2, max_size=4))
    ended: set[tuple[str | None, type]] = set()

    @settings(max_examples=400, deadline=None)
    @given(
        steps=st.lists(st.lists(ids, min_size=1, max_size=4), min_size=1, max_size=25).map(flat),
        prompt=st.one_of(
            st.lists(st.integers(0, top), min_size=1, max_size=12),
            # Long ones that end in words, whose beginning is left out, and some with anything where the cut would be.
            st.tuples(
                st.lists(st.integers(0, top), max_size=40),
                st.lists(st.integers(top - 12, top), min_size=20, max_size=30),
                st.lists(st.integers(0, top), max_size=2),
            ).map(lambda parts: [token for part in parts for token in part]),
        ),
        stop=st.lists(st.sampled_from(STOPS), max_size=3, unique=True),
        keep=st.booleans(),
        skip=st.booleans(),
        space=st.booleans(),
        max_tokens=st.integers(1, 60),
    )
    def compare(steps, prompt, stop, keep, skip, space, max_tokens) -> None:  # type: ignore[no-untyped-def]
        oracle = Oracle(
            vocabulary,
            prompt,
            stop=stop,
            include_stop_str_in_output=keep,
            skip_special_tokens=skip,
            spaces_between_special_tokens=space,
            max_tokens=max_tokens,
        )
        detokenizer = Detokenizer(vocabulary, prompt, stop=stop, keep_stop=keep, skip_special=skip, space_special=space)
        ours = Transcript(detokenizer, eos=[2], stops=[0], max_tokens=max_tokens, keep_stop=keep)
        for ids in steps:
            delta = ours.feed(ids)
            assert delta == oracle.feed(ids)
            if delta.finish_reason is not None:
                ended.add((delta.finish_reason, type(delta.stop_reason)))
                break

    compare()
    assert ended == {("stop", type(None)), ("stop", int), ("stop", str), ("length", type(None))}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["vocabulary", "pieces"])
def test_a_token_on_its_own_has_the_text_that_vllm_gives_it(kind: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("vllm")
    from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens

    vocabulary: Vocabulary = request.getfixturevalue(kind)
    tokenizer: Any = SimpleNamespace(
        backend_tokenizer=vocabulary.tokenizer,
        decode=vocabulary.decode,
        convert_ids_to_tokens=lambda ids: [vocabulary.tokenizer.id_to_token(each) for each in ids],
    )
    ids = list(range(vocabulary.tokenizer.get_vocab_size()))
    assert [vocabulary.text(each) for each in ids] == convert_ids_list_to_tokens(tokenizer, ids)

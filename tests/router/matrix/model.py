"""A checkpoint that says what it is told to: each token has one successor.

Its layers add nothing to the stream, so the last token alone decides the next, and what it will say is known without
running it. Scripts make a real vLLM reason, call tools and split characters, which random weights never do.

Invariant: in every script a token comes up once; `walk` and `accounts` give the tokens and log-probabilities that any
correct engine gives.
"""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from deploy.checkpoints import gqa
from deploy.checkpoints.draw import matrix
from deploy.checkpoints.shape import HIDDEN
from deploy.checkpoints.tokenizer import Vocabulary, tokenizer_files, train
from deploy.checkpoints.weights import write_weights
from router.logprobs import Reported

LENGTH = 512
END, PAD = 2, 0
SHARP = 9.0  # logit of the successor; the others' have a standard deviation of a sixteenth of it

REASONING = ["<think>", "I should", " look", " it", " up.", "</think>"]
ANSWER = ["\n\nThe", " answer", " follows", ":\n"]
CALL = [
    "<tool_call>",
    '\n{"name": "loo',
    'kup", "argu',
    'ments": {"city": "',
    "東京 ",
    'x", "n"',
    ": [1, 2]}}\n",
    "</tool_call>",
]
SECOND = ["\n<tool", "_call>\n", '{"name": "f", "arguments"', ": {}}", "\n</tool_", "call>"]
BROKEN = ["<tool_c", 'all>\n{"name": "lookup", "arguments": {"city": ', '"no end']
GOES: Mapping[str, list[str]] = {
    # What a prompt that ends in the key is continued by; a script that ends in another's begin goes on with it.
    "<|go-all|>": [*REASONING, *ANSWER, *CALL, *SECOND],
    "<|go-answer|>": ["<|pass-answer|>", ANSWER[0]],
    "<|go-call|>": ["<|pass-call|>", CALL[0]],
    "<|go-second|>": ["Calling.", SECOND[0]],
    "<|go-broken|>": ["Hm", ".", *BROKEN],
    "<|go-bytes|>": [],
    "<|go-think-only|>": ["All", " of", " this", " is", " thought", " alone"],
    "<|go-end-think|>": ["so", " much", " for", " that.", REASONING[-1]],
}
BYTES = "🎉 日é"  # each byte of it is a token, and comes up once


class Model:
    """What the checkpoint in `directory` will say."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.tokenizer, following = _vocabulary()
        size = self.tokenizer.get_vocab_size()
        embedding = matrix("scripted.embed", size, HIDDEN)
        embedding *= np.sqrt(HIDDEN) / np.linalg.norm(embedding, axis=1, keepdims=True)
        head = np.zeros_like(embedding)
        np.add.at(head, following, embedding * (SHARP / HIDDEN))
        self._embedding, self._head = embedding, head
        # Rows that many tokens lead to are long, so a few ordinary tokens end up elsewhere than they were meant to.
        self._next = np.argmax(embedding @ head.T, axis=1)
        for key, script in GOES.items():
            meant = [self.tokenizer.token_to_id(piece) for piece in (key, *script)]
            assert list(self._next[meant[:-1]]) == meant[1:], key
        self._write(size)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        return list(self.tokenizer.encode(text).ids)

    def before(self, token: int) -> int:
        """A token that `token` follows."""
        return int(np.flatnonzero(self._next[: self.tokenizer.token_to_id("<|go-all|>")] == token)[3])

    def walk(self, first: int) -> list[int]:
        """What follows `first`, whatever ends the reply."""
        found = []
        for _ in range(LENGTH):
            first = int(self._next[first])
            found.append(first)
        return found

    def accounts(self, first: int) -> list[Reported]:
        """Log-probability, rank and most likely tokens of each that follows `first`, as far as tests go."""
        return [self._account(token) for token in [first, *self.walk(first)][:40]]

    def _account(self, token: int) -> Reported:
        logits = (self._head @ self._embedding[token]).astype(np.float64)
        values = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        top = np.argsort(-values, kind="stable")[:20]
        return float(values[self._next[token]]), 1, [(int(each), float(values[each])) for each in top]

    def _write(self, size: int) -> None:
        vocabulary = Vocabulary(size=size, end=END, pad=PAD, markers=(), stray=())
        config = gqa.config(vocabulary) | {
            "num_hidden_layers": 1,
            "max_position_embeddings": LENGTH,
            "dtype": "float32",
        }
        weights: dict[str, NDArray[np.float32]] = {
            name: values for name, values in gqa.tensors(vocabulary).items() if "layers." not in name or ".0." in name
        }
        for name, values in weights.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weights[name] = np.zeros_like(values)
        weights["model.embed_tokens.weight"] = self._embedding
        weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
        weights["lm_head.weight"] = self._head
        tokens = {"eos_token_id": END, "pad_token_id": PAD, "bos_token_id": None}
        (self.directory / "config.json").write_text(json.dumps(config | tokens))
        (self.directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, PAD]}))
        tokenizer_files(self.directory, self.tokenizer, LENGTH)
        settings = self.directory / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
        write_weights(self.directory / "model.safetensors", weights, "float32")


TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if reasoning_effort is defined and reasoning_effort %}{{ reasoning_effort }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% if go is defined %}{{ go }}{% endif %}"
)


def _vocabulary() -> tuple[Tokenizer, NDArray[np.int64]]:
    """The tokenizer, and each token's successor."""
    tokenizer, small = train()
    pieces = dict.fromkeys(piece for key, script in GOES.items() for piece in (key, *script))
    tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in pieces])
    ids = {piece: tokenizer.token_to_id(piece) for piece in pieces}
    size = tokenizer.get_vocab_size()
    following = np.full(size, END, np.int64)
    ordinary = np.arange(3, small.size)
    # Rows of bytes of several characters come up on their way through the vocabulary, whole and broken.
    following[ordinary] = np.random.RandomState(7).permutation(ordinary)
    following[ordinary[::61]] = END
    following[ordinary[::83]] = PAD
    spelt = [tokenizer.token_to_id(sign) for sign in _signs(BYTES)]
    following[spelt[:-1]] = spelt[1:]
    following[ids["<|go-bytes|>"]] = spelt[0]
    for key, script in GOES.items():
        for one, other in itertools.pairwise([key, *script]):
            following[ids[one]] = ids[other]
    return tokenizer, following


def _signs(text: str) -> list[str]:
    """The byte-level alphabet's sign of each byte, each once."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [each for each in range(256) if each not in shown]
    signs = {**{each: chr(each) for each in shown}, **{each: chr(256 + at) for at, each in enumerate(hidden)}}
    return list(dict.fromkeys(signs[each] for each in text.encode()))

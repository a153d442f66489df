"""Stock vLLM without a connector and without HTTP: `vllm.LLM`, its best case."""

import sys

from deploy.opponents.answer import Tops, answer_all

__all__ = ["main"]


def main(model: str, dtype: str) -> None:
    """Serve asks with vLLM."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model,
        dtype=dtype,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=2048,
        compilation_config={"custom_ops": ["all", "-rotary_embedding"]},  # see tilert_connector/layout/probe.py
    )

    def generate(prompt: list[int], tokens: int, tops: bool) -> tuple[list[int], Tops]:
        params = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=20 if tops else None
        )
        (output,) = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
        answer = output.outputs[0]
        steps = [[(token, one.logprob) for token, one in step.items()] for step in answer.logprobs or []]
        return list(answer.token_ids), [sorted(step, key=lambda pair: -pair[1]) for step in steps]

    answer_all(generate)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

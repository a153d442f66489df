"""Hugging Face transformers on the CPU, with its key-value cache."""

import sys

from deploy.opponents.answer import Tops, answer_all

__all__ = ["main"]


def main(model: str, dtype: str) -> None:
    """Serve asks with transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    network.generation_config.eos_token_id = None

    def generate(prompt: list[int], tokens: int, tops: bool) -> tuple[list[int], Tops]:
        with torch.no_grad():
            output = network.generate(
                torch.tensor([prompt]),
                max_new_tokens=tokens,
                do_sample=False,
                output_logits=tops,
                return_dict_in_generate=True,
            )
        best = [logits[0].float().log_softmax(-1).topk(20) for logits in output.logits or ()]
        steps = [list(zip(one.indices.tolist(), one.values.tolist(), strict=True)) for one in best]
        return output.sequences[0, len(prompt) :].tolist(), steps

    answer_all(generate)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

"""Hugging Face transformers on the CPU, with its key-value cache."""

import sys

from deploy.opponents.answer import answer_all

__all__ = ["main"]


def main(model: str, dtype: str) -> None:
    """Serve asks with transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    network.generation_config.eos_token_id = None

    def generate(prompt: list[int], tokens: int) -> list[int]:
        with torch.no_grad():
            output = network.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False)
        return [int(token) for token in output[0, len(prompt) :]]

    answer_all(generate)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

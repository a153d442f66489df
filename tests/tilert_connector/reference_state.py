"""The attention state of a prompt by Hugging Face transformers: nothing of vLLM's or of ours takes part."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

State = dict[str, NDArray[np.float32]]


class Reference:
    """`state(prompt)`: plane name -> float32[tokens][width]."""

    def __init__(self, model_dir: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=torch.float32, attn_implementation="eager"
        )
        self.model.eval()
        self.mla = hasattr(self.model.config, "kv_lora_rank")

    @torch.no_grad()
    def state(self, prompt: list[int]) -> State:
        out = self.model(torch.tensor([prompt]), use_cache=True)
        planes: State = {}
        for index, layer in enumerate(out.past_key_values.layers):
            # MLA: transformers keeps the latent as keys and the rotated part as values.
            keys, values = layer.keys[0].numpy(), layer.values[0].numpy()
            if self.mla:
                planes[f"layers.{index}.kv"] = np.concatenate([keys[0], in_pairs(values[0])], 1)
                continue
            for head in range(keys.shape[0]):
                planes[f"layers.{index}.k.{head}"] = keys[head]
                planes[f"layers.{index}.v.{head}"] = values[head]
        return planes


def in_pairs(halves: NDArray[np.float32]) -> NDArray[np.float32]:
    """transformers keeps rotated pairs as two halves, vLLM side by side."""
    half = halves.shape[1] // 2
    return np.stack([halves[:, :half], halves[:, half:]], -1).reshape(halves.shape)

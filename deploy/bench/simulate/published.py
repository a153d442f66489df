"""Figures that others published, which simulated ones are held against. Nothing of the simulator is read from here.

GLM-5.1 FP8 on 8xB200, one request, 1,024 tokens of output, tokens a second for the user. `no_mtp`, `mtp`: TileRT 0.1.5,
its authors' figures, without speculation and with draft depth 3 at a mean acceptance of 3.2. `conventional`: the best
FP8 results of engines without resident workers in an independent benchmark of the whole serving path, with the
acceptance that its prompts gave.
"""

__all__ = ["CONTEXTS", "PUBLISHED"]

CONTEXTS = {"1k": 1024, "16k": 16384, "32k": 32768, "64k": 65536, "128k": 131072, "160k": 163840, "192k": 196608}
"""Tokens of input, by the key of a point."""

PUBLISHED: dict[str, dict[str, float]] = {
    "no_mtp": {"1k": 301.0, "32k": 197.0, "128k": 176.0},
    "mtp": {"1k": 618.0, "32k": 429.0, "128k": 378.0},
    "conventional": {"1k": 136.3, "8k": 113.6},
}
"""By kind and point; points that nobody published are left out."""

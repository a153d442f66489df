"""Kernel of the sampling operator. See `manifest.sampling` for what it computes."""

import math

import numpy as np

from persistent_engine.runtime.cpu.jit import kernel

__all__ = ["sample"]


@kernel
def _argmax(logits, count):
    best = 0
    for i in range(1, count):
        if logits[i] > logits[best]:
            best = i
    return best


@kernel
def _sift(heap, start, end):
    """Restore the max-heap below `start`."""
    root = start
    while True:
        child = 2 * root + 1
        if child >= end:
            return
        if child + 1 < end and heap[child + 1] > heap[child]:
            child += 1
        if heap[root] >= heap[child]:
            return
        heap[root], heap[child] = heap[child], heap[root]
        root = child


@kernel
def _keep_largest(weights, heap, count, most, mass):
    """Zero all weights but the largest: at most `most`, or until their sum reaches `mass`; ties to lower ids.

    With `most`, every weight equal to the last one kept is kept too (vLLM's top-k); with `mass` only as many as needed.
    """
    end = 0
    for i in range(count):
        if weights[i] > 0:
            heap[end] = weights[i]
            end += 1
    for start in range(end // 2 - 1, -1, -1):
        _sift(heap, start, end)
    total, popped, smallest, equal = 0.0, 0, np.float32(0.0), 0
    while end > 0 and popped < most and total < mass:
        equal = equal + 1 if heap[0] == smallest else 1
        smallest = heap[0]
        total += smallest
        popped += 1
        end -= 1
        heap[0] = heap[end]
        _sift(heap, 0, end)
    for i in range(count):
        if weights[i] == smallest and mass < math.inf:
            if equal == 0:
                weights[i] = 0
            else:
                equal -= 1
        elif weights[i] < smallest:
            weights[i] = 0


@kernel
def _uniform(seed, position):
    golden, first, second = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    state = np.uint64(seed) + np.uint64(position + 1) * golden
    state = (state ^ (state >> np.uint64(30))) * first
    state = (state ^ (state >> np.uint64(27))) * second
    return np.float64((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@kernel
def sample(logits, weights, heap, count, position, seed, temperature, top_k, top_p, min_p):
    """Next token id. weights, heap: float32[count] scratch."""
    best = _argmax(logits, count)
    if temperature == 0:
        return best
    total = 0.0
    for i in range(count):
        weight = np.float32(math.exp((np.float64(logits[i]) - np.float64(logits[best])) / temperature))
        weights[i] = weight if weight >= min_p else np.float32(0.0)
    if 0 < top_k < count:
        _keep_largest(weights, heap, count, top_k, math.inf)
    for i in range(count):
        total += weights[i]
    if top_p < 1:
        _keep_largest(weights, heap, count, count, top_p * total)
        total = 0.0
        for i in range(count):
            total += weights[i]
    target, chosen = _uniform(seed, position) * total, best
    for i in range(count):
        if weights[i] > 0:
            chosen = i
            target -= weights[i]
            if target < 0:
                break
    return chosen

# SPDX-License-Identifier: Apache-2.0
"""Batches of token numbers of varying length, for `penstock run --loader`. Needs no package."""
import array


def token_batches(samples=8, batches=100):
    """Each batch has as many tokens in a sample as its longest text."""
    for number in range(batches):
        longest = 64 + number * 37 % 192
        tokens = memoryview(array.array("i", [1]) * (samples * longest)).cast("B").cast("i", (samples, longest))
        yield {"input_ids": tokens, "lengths": array.array("i", [longest] * samples)}

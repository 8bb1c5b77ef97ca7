# SPDX-License-Identifier: Apache-2.0
"""A loop as a training has it, for `penstock watch`. It needs no package."""
import time

try:
    from penstock_bench import watching
except ImportError:  # neither installed nor under `penstock watch`
    watching = None


def batches():
    for _ in range(40):
        time.sleep(0.01)  # reads and decodes
        yield memoryview(bytes(64))


def main():
    for _ in watching.watch(batches()) if watching else batches():
        time.sleep(0.02)  # trains


main()

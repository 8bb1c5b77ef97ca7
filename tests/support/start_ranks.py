#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a program as several ranks with torchrun's variables, in place of torchrun.

Usage: start_ranks.py RANKS PROGRAM [ARGUMENT...]. Exits with the largest exit code.
"""
import os
import socket
import subprocess
import sys

LIMIT_S = 200


def bound_neighbours():
    """Two sockets at consecutive ports. They do not listen, so that only a program with SO_REUSEADDR can bind there too."""
    while True:
        store, beside = socket.socket(), socket.socket()
        try:
            for each in (store, beside):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("127.0.0.1", 0))
            beside.bind(("127.0.0.1", store.getsockname()[1] + 1))
            return store, beside
        except (OSError, OverflowError):
            store.close()
            beside.close()


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    store, _beside = bound_neighbours()  # torchrun's store keeps MASTER_PORT for itself; ranks meet at the next one
    common = dict(os.environ, WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(store.getsockname()[1]), TORCHELASTIC_RUN_ID=f"test {os.getpid()}",
                  TORCHELASTIC_RESTART_COUNT="0")
    started = [subprocess.Popen(command, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(ranks)]
    try:
        codes = [rank.wait(timeout=LIMIT_S) for rank in started]
    finally:
        for rank in started:
            rank.kill()
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    sys.exit(main())

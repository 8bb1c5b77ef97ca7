# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's DistributedDataParallel over Gloo on the cores of a machine, as the peer of `penstock run
--device cpu --variable-update horovod`. Gradients are views into the buckets, which avoids copying them.
Rank 0 prints one line of JSON, with every step's time.

Usage: pytorch_ddp.py --rank R --ranks N --address HOST --port P [--bucket-mib 25] and the flags of
pytorch_trainer.py
"""
import argparse
import datetime
import json
import os
import statistics
import sys

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from pytorch_trainer import Trainer, environment, parse_arguments, positive, timed


def parse_own():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=positive, required=True)
    parser.add_argument("--address", required=True, help="address of rank 0's host")
    parser.add_argument("--port", type=positive, required=True)
    parser.add_argument("--interface", help="network interface that Gloo uses")
    parser.add_argument("--bucket-mib", type=float, default=25)
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def main():
    own, arguments = parse_own(), parse_arguments()
    if own.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = own.interface
    torch.set_num_threads(arguments.threads)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://{own.address}:{own.port}", rank=own.rank,
                                         world_size=own.ranks, timeout=datetime.timedelta(seconds=120))
    trainer = Trainer(arguments)
    trainer.net = DistributedDataParallel(trainer.net, bucket_cap_mb=own.bucket_mib, gradient_as_bucket_view=True)
    timed(trainer, max(arguments.warmup, 2))  # from the second step on, buckets follow the order of the first step
    step_ms = timed(trainer, arguments.steps)
    with trainer.net.no_sync():
        alone_ms = timed(trainer, max(arguments.steps // 2, 1))
    if own.rank == 0:
        median = statistics.median(step_ms)
        print(json.dumps({
            "peer": "pytorch_ddp",
            "settings": {**vars(arguments), **vars(own)},
            "parameters": trainer.parameters,
            "img_per_s_median": own.ranks * arguments.batch / median * 1e3,
            "step_ms_median": median,
            "step_without_exchange_ms_median": statistics.median(alone_ms),
            "step_ms": [round(ms, 3) for ms in step_ms],
            **environment(),
        }))
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""A training of two ranks over gloo, for `penstock watch -- torchrun`. Rank 0 waits for one worker, rank 1 hardly for eight."""
import time

import torch
import torch.distributed as distributed
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(3, 8, 8), index % 10


def main():
    distributed.init_process_group("gloo")
    workers = 1 if distributed.get_rank() == 0 else 8
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 * 8 * 8, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        for pixels, labels in DataLoader(Slow(), 8, num_workers=workers):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels.flatten(1)), labels).backward()
            optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

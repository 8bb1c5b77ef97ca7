// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/link_collective.h"

#include <cstddef>
#include <utility>

#include "dataflow/error.h"
#include "trainer/collectives/algorithms/exchange.h"

namespace penstock {

LinkCollective::LinkCollective(std::unique_ptr<Link> link, Device& device, AllReducePlan plan,
                               std::int32_t local_ranks)
    : link_(std::move(link)), arrived_(device.make_event()), plan_(std::move(plan)) {
  PENSTOCK_ASSERT(!plan_.empty() && local_ranks > 0);
  workspace_.local_ranks = local_ranks;
}

void LinkCollective::all_reduce_sum(Tensor tensor, Stream& stream) {
  const std::span<float> values = arrive(tensor, stream);
  if (values.empty()) return;
  const AllReduceChoice& choice = choice_for(plan_, values.size());
  for (std::int32_t shard = 0; shard < choice.shards; ++shard) {
    choice.algorithm->all_reduce(*link_, shares(values, shard, shard + 1, choice.shards),
                                 workspace_);
  }
}

void LinkCollective::reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) {
  const std::span<float> values = arrive(tensor, stream);
  if (values.empty()) return;
  if (world().rank == root) {
    tree_reduce(*link_, values, root, workspace_);
    return;
  }
  sums_.assign(values.begin(), values.end());
  tree_reduce(*link_, sums_, root, workspace_);
}

void LinkCollective::broadcast(Tensor tensor, std::int32_t root, Stream& stream) {
  const std::span<float> values = arrive(tensor, stream);
  if (!values.empty()) tree_broadcast(*link_, values, root);
}

std::span<float> LinkCollective::arrive(const Tensor& tensor, Stream& stream) {
  if (world().size == 1) return {};
  PENSTOCK_ASSERT(tensor.dtype == DType::f32);
  stream.record(*arrived_);
  arrived_->wait_until(Time::max());  // the CPU touches the elements
  meet();
  return {static_cast<float*>(tensor.data), tensor.count};
}

/// The dissemination barrier (Hensgen, Finkel and Manber, 1988): ceil(log2(n)) steps.
void LinkCollective::meet() {
  const auto [rank, ranks] = world();
  for (std::int32_t distance = 1; distance < ranks; distance *= 2) {
    const std::byte here{};
    std::byte there{};
    link_->send_receive((rank + distance) % ranks, std::span(&here, 1),
                        (rank + ranks - distance) % ranks, std::span(&there, 1));
  }
}

}  // namespace penstock

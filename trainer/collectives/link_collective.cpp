// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/link_collective.h"

#include <fmt/format.h>

#include <limits>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {
namespace {

/// "tree up to 32768 elements, ring in 2 pieces beyond".
std::string describe(const AllReducePlan& plan) {
  std::string text;
  for (const AllReduceChoice& choice : plan) {
    if (!text.empty()) text += ", ";
    text += choice.algorithm->name;
    if (choice.shards > 1) text += fmt::format(" in {} pieces", choice.shards);
    const bool last = choice.max_elements == std::numeric_limits<std::uint64_t>::max();
    if (!last) text += fmt::format(" up to {} elements", choice.max_elements);
    if (last && plan.size() > 1) text += " beyond";
  }
  return text;
}

/// The tree for small tensors and the ring for large ones.
AllReducePlan default_all_reduce_plan() {
  constexpr std::uint64_t kSmall = 4096;  // 16 KiB: latency costs more than bytes
  return {{.algorithm = &find_entry(all_reduce_table(), "tree"), .max_elements = kSmall},
          {.algorithm = &find_entry(all_reduce_table(), "ring")}};
}

std::size_t count_of(std::span<const std::byte> floats) {
  PENSTOCK_ASSERT(floats.size() % sizeof(float) == 0);
  return floats.size() / sizeof(float);
}

std::span<std::byte> grown(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return std::span(memory).first(bytes);
}

ExchangeChoice with_plan(ExchangeChoice choice) {
  if (choice.plan.empty()) choice.plan = default_all_reduce_plan();
  return choice;
}

}  // namespace

void CompactLink::send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                               std::span<std::byte> received) {
  const std::size_t count = count_of(received);
  const std::span<std::byte> wire = grown(incoming_, count * element_bytes(format_));
  link_.send_receive(to, narrowed(sent), from, wire);
  widen(format_, wire, {reinterpret_cast<float*>(received.data()), count});
}

std::span<const std::byte> CompactLink::narrowed(std::span<const std::byte> floats) {
  const std::size_t count = count_of(floats);
  const std::span<std::byte> wire = grown(outgoing_, count * element_bytes(format_));
  narrow(format_, {reinterpret_cast<const float*>(floats.data()), count}, wire);
  return wire;
}

std::string how_links_exchange(const ExchangeChoice& choice, std::string_view between) {
  return fmt::format("{}, in messages {} of {}", describe(with_plan(choice).plan), between,
                     to_string(choice.wire));
}

LinkCollective::LinkCollective(std::unique_ptr<Link> link, Device& device, ExchangeChoice choice)
    : link_(std::move(link)), arrived_(device.make_event()), choice_(with_plan(std::move(choice))) {
  PENSTOCK_ASSERT(choice_.local_ranks > 0);
  workspace_.local_ranks = choice_.local_ranks;
  if (choice_.wire != WireFormat::f32) compact_.emplace(*link_, choice_.wire);
}

void LinkCollective::all_reduce_sum(Tensor tensor, Stream& stream) {
  const std::span<float> values = arrive(tensor, stream);
  if (values.empty()) return;
  Link& link = compact_ ? static_cast<Link&>(*compact_) : *link_;
  const AllReduceChoice& choice = choice_for(choice_.plan, values.size());
  for (std::int32_t shard = 0; shard < choice.shards; ++shard) {
    choice.algorithm->all_reduce(link, shares(values, shard, shard + 1, choice.shards), workspace_);
  }
  if (!compact_) return;
  // The rank that completed a sum has it in f32, the other ranks have it as it was sent.
  const std::size_t nonfinite = round_to(choice_.wire, values);
  const bool counts = choice_.nonfinite != nullptr && world().rank == 0;  // all ranks see the same
  if (counts && nonfinite > 0) choice_.nonfinite->add(static_cast<std::int64_t>(nonfinite));
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

}  // namespace penstock::collectives

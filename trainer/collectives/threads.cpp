// SPDX-License-Identifier: Apache-2.0
// Rank r adds its share of the elements over all ranks, in rank order, and writes it to all ranks
// (all-reduce) or to the root (reduce). For n ranks and tensors of S bytes, an all-reduce reads n S
// from memory and writes n S, the least traffic that leaves every rank with the sum.
#include "trainer/collectives/threads.h"

#include <cstring>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backend.h"

namespace penstock::collectives {

ThreadsGroup::ThreadsGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop,
                           ExchangeChoice choice)
    : ranks_(devices.size()),
      choice_(std::move(choice)),
      meeting_(devices.size(), clock, std::move(stop)) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    for (auto& event : ranks_[rank].arrived) event = devices[rank]->make_event();
  }
}

class ThreadsCollective final : public Collective {
 public:
  ThreadsCollective(ThreadsGroup& group, std::int32_t rank) : group_(group), rank_(rank) {}

  World world() const noexcept override {
    return {rank_, static_cast<std::int32_t>(group_.ranks_.size())};
  }

  bool recordable() const noexcept override { return true; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    if (!arrive(tensor, stream)) return;
    tensors_.clear();
    for (const ThreadsGroup::Rank& rank : group_.ranks_) {
      tensors_.push_back(static_cast<float*>(rank.tensor.data));
    }
    const Range mine = share(rank_, tensor.count);
    const ExchangeChoice& choice = group_.choice_;
    const std::size_t nonfinite = add_into_all(choice.wire, tensors_, mine.first, mine.count);
    if (choice.nonfinite != nullptr && nonfinite > 0) {
      choice.nonfinite->add(static_cast<std::int64_t>(nonfinite));
    }
    group_.meeting_.meet();
  }

  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    if (!arrive(tensor, stream)) return;
    reduce(root, share(rank_, tensor.count));
    group_.meeting_.meet();
  }

  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    if (!arrive(tensor, stream)) return;
    copy_from(root, {0, tensor.count});
    group_.meeting_.meet();
  }

 private:
  /// Shows the tensor to the other ranks and meets them. False: there is nothing to exchange.
  bool arrive(const Tensor& tensor, Stream& stream) {
    if (group_.ranks_.size() == 1) return false;
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    const std::size_t parity = calls_++ % 2;
    ThreadsGroup::Rank& mine = group_.ranks_[static_cast<std::size_t>(rank_)];
    mine.tensor = tensor;
    stream.record(*mine.arrived[parity]);
    group_.meeting_.meet();
    for (const ThreadsGroup::Rank& rank : group_.ranks_) stream.wait_for(*rank.arrived[parity]);
    if (tensor.count == 0) return false;
    for (const ThreadsGroup::Rank& rank : group_.ranks_) {
      rank.arrived[parity]->wait_until(Time::max());  // the CPU touches the elements
    }
    return true;
  }

  struct Range {
    std::size_t first, count;
  };
  Range share(std::int32_t rank, std::size_t count) const {
    const std::size_t ranks = group_.ranks_.size();
    const auto index = static_cast<std::size_t>(rank);
    const std::size_t first = count * index / ranks;
    return {first, count * (index + 1) / ranks - first};
  }
  float* elements(std::size_t rank, const Range& range) const {
    return static_cast<float*>(group_.ranks_[rank].tensor.data) + range.first;
  }
  /// Adds the range over all ranks into `to`'s tensor.
  void reduce(std::int32_t to, const Range& range) const {
    std::vector<const std::byte*> parts;
    for (std::size_t rank = 0; rank < group_.ranks_.size(); ++rank) {
      parts.push_back(reinterpret_cast<const std::byte*>(elements(rank, range)));
    }
    const auto root = static_cast<std::size_t>(to);
    add_parts(WireFormat::f32, parts, root, elements(root, range), nullptr, range.count);
  }
  void copy_from(std::int32_t from, const Range& range) const {
    if (from == rank_) return;
    std::memcpy(elements(static_cast<std::size_t>(rank_), range),
                elements(static_cast<std::size_t>(from), range), range.count * sizeof(float));
  }

  ThreadsGroup& group_;
  const std::int32_t rank_;
  std::uint64_t calls_ = 0;
  std::vector<float*> tensors_;  // by rank, of the current call
};

std::unique_ptr<Collective> ThreadsGroup::join(std::int32_t rank) {
  return std::make_unique<ThreadsCollective>(*this, rank);
}

std::string ThreadsGroup::how() const {
  if (choice_.wire == WireFormat::f32) return {};
  return "shared memory, rounded to " + std::string(to_string(choice_.wire)) +
         " as if it were sent in that format";
}

}  // namespace penstock::collectives

namespace penstock {

std::unique_ptr<CollectiveGroup> make_thread_group(std::span<Device* const> devices,
                                                   const ExchangeSpec& spec, Clock& clock,
                                                   std::stop_token stop) {
  return std::make_unique<collectives::ThreadsGroup>(
      devices, clock, std::move(stop), collectives::ExchangeChoice{.wire = spec.wire});
}

}  // namespace penstock

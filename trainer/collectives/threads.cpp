// SPDX-License-Identifier: Apache-2.0
// Through shared memory: rank r adds its share of the elements over all ranks, in rank order;
// every rank then copies the other shares (all-reduce), or all shares end at the root (reduce).
#include "trainer/collectives/threads.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {

ThreadsGroup::ThreadsGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop)
    : ranks_(devices.size()), meeting_(devices.size(), clock, std::move(stop)) {
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
    reduce(rank_, share(rank_, tensor.count));
    group_.meeting_.meet();
    for (std::int32_t rank = 0; rank < world().size; ++rank) {
      copy_from(rank, share(rank, tensor.count));
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
  /// Shows the tensor to the other ranks and meets them; false: there is nothing to exchange.
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
  /// Adds the range over all ranks, in rank order, into `to`'s tensor: block by block, so that the
  /// sum lies in a register or first-level cache while it grows.
  void reduce(std::int32_t to, const Range& range) const {
    constexpr std::size_t kBlock = 1024;
    std::array<float, kBlock> sum{};
    float* const result = elements(static_cast<std::size_t>(to), range);
    for (std::size_t first = 0; first < range.count; first += kBlock) {
      const std::size_t count = std::min(kBlock, range.count - first);
      std::copy_n(elements(0, range) + first, count, sum.begin());
      for (std::size_t rank = 1; rank < group_.ranks_.size(); ++rank) {
        const float* const more = elements(rank, range) + first;
        for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
      }
      std::copy_n(sum.begin(), count, result + first);
    }
  }
  void copy_from(std::int32_t from, const Range& range) const {
    if (from == rank_) return;
    std::memcpy(elements(static_cast<std::size_t>(rank_), range),
                elements(static_cast<std::size_t>(from), range), range.count * sizeof(float));
  }

  ThreadsGroup& group_;
  const std::int32_t rank_;
  std::uint64_t calls_ = 0;
};

std::unique_ptr<Collective> ThreadsGroup::join(std::int32_t rank) {
  return std::make_unique<ThreadsCollective>(*this, rank);
}

}  // namespace penstock

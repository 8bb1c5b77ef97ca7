// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather through shared memory: rank r adds its share of the elements over
// all ranks, in rank order, and every rank then copies the other shares.
#include "trainer/collectives/threads.h"

#include <algorithm>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {

ThreadsGroup::ThreadsGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop)
    : clock_(clock), stop_(std::move(stop)), ranks_(devices.size()) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    for (auto& event : ranks_[rank].arrived) event = devices[rank]->make_event();
  }
}

void ThreadsGroup::meet() {
  std::unique_lock lock(mutex_);
  const std::uint64_t generation = generation_;
  if (++waiting_ == ranks_.size()) {
    waiting_ = 0;
    ++generation_;
    clock_.wake(gate_);
    return;
  }
  if (!clock_.wait(lock, gate_, stop_, [&] { return generation_ != generation; })) {
    throw Error("the exchange between ranks was abandoned: the run is stopping");
  }
}

class ThreadsCollective final : public Collective {
 public:
  ThreadsCollective(ThreadsGroup& group, std::int32_t rank) : group_(group), rank_(rank) {}

  World world() const noexcept override {
    return {rank_, static_cast<std::int32_t>(group_.ranks_.size())};
  }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    if (group_.ranks_.size() == 1) return;
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    const std::size_t parity = calls_++ % 2;
    ThreadsGroup::Rank& mine = group_.ranks_[static_cast<std::size_t>(rank_)];
    mine.tensor = tensor;
    stream.record(*mine.arrived[parity]);
    group_.meet();
    for (const ThreadsGroup::Rank& rank : group_.ranks_) stream.wait_for(*rank.arrived[parity]);
    if (tensor.count == 0) return;
    for (const ThreadsGroup::Rank& rank : group_.ranks_) {
      rank.arrived[parity]->wait_until(Time::max());  // the CPU touches the elements
    }
    reduce(share(rank_, tensor.count));
    group_.meet();
    for (std::int32_t rank = 0; rank < world().size; ++rank)
      gather(rank, share(rank, tensor.count));
    group_.meet();
  }

 private:
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
  void reduce(const Range& range) const {
    float* sum = elements(static_cast<std::size_t>(rank_), range);
    for (std::size_t i = 0; i < range.count; ++i) {
      float total = 0;
      for (std::size_t rank = 0; rank < group_.ranks_.size(); ++rank) {
        total += elements(rank, range)[i];
      }
      sum[i] = total;
    }
  }
  void gather(std::int32_t from, const Range& range) const {
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

// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/group.h"

#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {

DeviceGroup::DeviceGroup(std::span<Device* const> devices, WireFormat wire, Clock& clock,
                         std::stop_token stop)
    : meeting_(devices.size(), clock, std::move(stop)) {
  PENSTOCK_ASSERT(devices.size() <= static_cast<std::size_t>(kMaxRanks));
  for (Device* const device : devices) ranks_.emplace_back(static_cast<GpuDevice&>(*device), wire);
}

class DeviceCollective final : public Collective {
 public:
  DeviceCollective(DeviceGroup& group, std::int32_t rank) : group_(group), rank_(rank) {}

  World world() const noexcept override {
    return {rank_, static_cast<std::int32_t>(group_.ranks_.size())};
  }
  /// The host threads meet in each call; a recorded step would not repeat that.
  bool recordable() const noexcept override { return group_.ranks_.size() == 1; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    if (group_.ranks_.size() == 1) return;
    GradientWire& wire = group_.ranks_[static_cast<std::size_t>(rank_)].wire;
    exchange(wire.narrow(tensor, stream), stream, [&] { sum(share(tensor.count), -1, stream); });
    wire.widen(tensor, stream);
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [&] { sum(share(tensor.count), root, stream); });
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [&] {
      if (root == rank_) return;
      const Tensor& from = group_.ranks_[static_cast<std::size_t>(root)].tensor;
      const std::size_t bytes = tensor.count * sizeof(float);
      stream.copy({static_cast<std::byte*>(tensor.data), bytes},
                  {static_cast<const std::byte*>(from.data), bytes});
    });
  }

 private:
  /// Every stream waits until all streams have arrived, does its share, and waits until all have
  /// finished theirs. An event may be recorded again only after every rank has enqueued its wait
  /// for it. A meeting between the two ensures this.
  template <typename Work>
  void exchange(const Tensor& tensor, Stream& stream, const Work& work) {
    if (group_.ranks_.size() == 1) return;
    DeviceGroup::Rank& mine = group_.ranks_[static_cast<std::size_t>(rank_)];
    mine.tensor = tensor;
    stream.record(*mine.arrived);
    group_.meeting_.meet();
    for (const DeviceGroup::Rank& rank : group_.ranks_) stream.wait_for(*rank.arrived);
    if (tensor.count > 0) work();
    stream.record(*mine.done);
    group_.meeting_.meet();
    for (const DeviceGroup::Rank& rank : group_.ranks_) stream.wait_for(*rank.done);
    group_.meeting_.meet();
  }

  struct Range {
    std::size_t first, count;
  };
  /// Shares begin at multiples of four elements, so that they stay aligned for vector loads.
  Range share(std::size_t count) const {
    const std::size_t ranks = group_.ranks_.size(), index = static_cast<std::size_t>(rank_);
    const std::size_t quads = (count + 3) / 4;
    const std::size_t first = std::min(count, quads * index / ranks * 4);
    return {first, std::min(count, quads * (index + 1) / ranks * 4) - first};
  }
  void sum(const Range& range, std::int32_t root, Stream& stream) {
    SumSlices call{.ranks = world().size, .root = root, .first = range.first, .count = range.count};
    for (std::size_t rank = 0; rank < group_.ranks_.size(); ++rank) {
      call.tensors[rank] = group_.ranks_[rank].tensor.data;
    }
    call.type = group_.ranks_.front().tensor.dtype;
    GpuDevice& device = group_.ranks_[static_cast<std::size_t>(rank_)].device;
    device.driver().launch(GpuStream::of(stream).handle(), call);
  }

  DeviceGroup& group_;
  const std::int32_t rank_;
};

std::unique_ptr<Collective> DeviceGroup::join(std::int32_t rank) {
  return std::make_unique<DeviceCollective>(*this, rank);
}

}  // namespace penstock::gpu

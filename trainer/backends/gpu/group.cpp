// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "trainer/wire_format.h"

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

// ---- gradients between GPUs -------------------------------------------------

DType dtype_of(WireFormat format) {
  if (format == WireFormat::f16) return DType::f16;
  return format == WireFormat::bf16 ? DType::bf16 : DType::f32;
}

void GradientWire::reserve(std::size_t count) {
  if (type_ == DType::f32 || count * size_of(type_) <= narrow_.bytes().size()) return;
  narrow_ = device_.allocate(count * size_of(type_), MemoryKind::device);
  const Buffer wide = device_.allocate(sizeof(float), MemoryKind::device);
  const Tensor one{wide.bytes().data(), 1, DType::f32};
  GpuStream stream(device_.driver());
  narrow(one, stream);
  widen(one, stream);
  stream.finish();
}

Tensor GradientWire::narrow(const Tensor& wide, Stream& stream) {
  if (type_ == DType::f32 || wide.count == 0) return wide;
  reserve(wide.count);
  const Tensor tensor{narrow_.bytes().data(), wide.count, type_};
  device_.driver().launch(
      GpuStream::of(stream).handle(),
      NarrowWeights{static_cast<const float*>(wide.data), tensor.data, type_, wide.count});
  return tensor;
}

void GradientWire::widen(const Tensor& wide, Stream& stream) {
  if (type_ == DType::f32 || wide.count == 0) return;
  device_.driver().launch(
      GpuStream::of(stream).handle(),
      WidenSums{narrow_.bytes().data(), type_, static_cast<float*>(wide.data), wide.count});
}

// ---- through communicators --------------------------------------------------

namespace {

/// Time between two checks of whether a call is in progress.
constexpr Nanoseconds kPoll = std::chrono::microseconds(20);

}  // namespace

NcclGroup::NcclGroup(std::span<Device* const> devices, const Rules& rules, Connect connect,
                     Clock& clock, std::stop_token stop)
    : rules_(rules),
      connect_(std::move(connect)),
      clock_(clock),
      stop_(stop),
      ranks_([&] {
        std::vector<std::unique_ptr<Rank>> ranks;
        for (Device* const device : devices) {
          ranks.push_back(std::make_unique<Rank>(static_cast<GpuDevice&>(*device), rules.wire));
        }
        return ranks;
      }()),
      meeting_(devices.size(), clock, stop),
      abandoned_(stop, [this] {
        for (const std::unique_ptr<Rank>& rank : ranks_) rank->abort();
      }) {}

void NcclGroup::Rank::abort() noexcept {
  const std::lock_guard lock(mutex);
  aborted = true;
  if (communicator == nullptr) return;
  communicator->abort();
  communicator.reset();
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(NcclGroup& group, std::int32_t rank)
      : group_(group),
        place_{rank, group.rules_.ranks},
        mine_(*group.ranks_[static_cast<std::size_t>(rank - group.rules_.first_rank)]) {}

  World world() const noexcept override { return {place_.rank, place_.size}; }
  /// Threads meet in each call. Recordings could be launched in a different order by each thread.
  bool recordable() const noexcept override { return group_.ranks_.size() == 1; }
  bool overlaps() const noexcept override { return place_.size > 1; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    if (place_.size == 1) return;
    const Tensor moved = mine_.wire.narrow(tensor, stream);
    exchange("all-reduce", moved, stream, [&](StreamHandle on) {
      mine_.communicator->all_reduce(moved.data, moved.dtype, moved.count, on);
    });
    mine_.wire.widen(tensor, stream);
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange("reduction", tensor, stream, [&](StreamHandle on) {
      mine_.communicator->reduce(static_cast<float*>(tensor.data), tensor.count, root, on);
    });
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    mine_.wire.reserve(tensor.count);
    exchange("broadcast", tensor, stream, [&](StreamHandle on) {
      mine_.communicator->broadcast(static_cast<float*>(tensor.data), tensor.count, root, on);
    });
  }

 private:
  template <typename Begin>
  void exchange(const char* what, const Tensor& tensor, Stream& stream, const Begin& begin) {
    if (place_.size == 1) return;
    if (!connected_) {
      perform("connection", 0, [&] { mine_.communicator = group_.connect_(place_); });
      connected_ = true;
    }
    if (group_.ranks_.size() > 1) group_.meeting_.meet();
    const StreamHandle on = GpuStream::of(stream).handle();
    perform(what, tensor.count, [&] {
      if (tensor.count > 0) {
        begin(on);
      } else {
        mine_.communicator->all_reduce(mine_.scratch.bytes().data(), DType::f32, 1, on);
      }
    });
  }

  /// Begins the call under the rank's mutex, and returns when it is enqueued.
  template <typename Begin>
  void perform(const char* what, std::size_t count, const Begin& begin) {
    const Time deadline = group_.clock_.now() + group_.rules_.timeout;
    try {
      if (under_way(begin)) return;
      while (!under_way([] {})) {
        const Time now = group_.clock_.now();
        if (now >= deadline) throw_late(what, count);
        group_.clock_.sleep_until(std::min(deadline, now + kPoll), group_.stop_);
      }
    } catch (const DeviceError& error) {
      mine_.abort();
      throw DeviceError("{}: {}", describe(what, count), error.what());
    } catch (...) {
      mine_.abort();
      throw;
    }
  }
  template <typename Begin>
  bool under_way(const Begin& begin) {
    const std::lock_guard lock(mine_.mutex);
    if (mine_.aborted) {
      throw Error("the exchange between ranks was abandoned: the run is stopping");
    }
    begin();
    return mine_.communicator->ready();
  }

  std::string describe(const char* what, std::size_t count) const {
    return fmt::format("rank {} of {}: the {}{}", place_.rank, place_.size, what,
                       count > 0 ? fmt::format(" of {} elements", count) : std::string());
  }
  [[noreturn]] void throw_late(const char* what, std::size_t count) const {
    throw TimeoutError(
        "{} did not start within {} s: another rank has not joined, or is disconnected; look for "
        "its message, or raise gpu:nccl_timeout",
        describe(what, count), to_seconds(group_.rules_.timeout));
  }

  NcclGroup& group_;
  const CommunicatorPlace place_;
  NcclGroup::Rank& mine_;
  bool connected_ = false;
};

std::unique_ptr<Collective> NcclGroup::join(std::int32_t rank) {
  return std::make_unique<NcclCollective>(*this, rank);
}

}  // namespace penstock::gpu

// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/nccl_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
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
      throw DeviceError(fmt::format("{}: {}", describe(what, count), error.what()));
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
    throw TimeoutError(fmt::format(
        "{} did not start within {} s: another rank has not joined, or is disconnected; look for "
        "its message, or raise gpu:nccl_timeout",
        describe(what, count), std::chrono::duration<double>(group_.rules_.timeout).count()));
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

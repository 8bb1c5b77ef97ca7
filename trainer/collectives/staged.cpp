// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/staged.h"

#include <cstddef>
#include <utility>

#include "dataflow/error.h"

namespace penstock::collectives {
namespace {

class StagedCollective final : public Collective {
 public:
  StagedCollective(Device& device, std::unique_ptr<Collective> inner)
      : device_(device), inner_(std::move(inner)), reached_(device.make_event()) {}

  World world() const noexcept override { return inner_->world(); }
  bool recordable() const noexcept override { return world().size == 1; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    const Tensor host = down(tensor, stream);
    inner_->all_reduce_sum(host, stream);
    up(host, tensor, stream);
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    const Tensor host = down(tensor, stream);
    inner_->reduce_sum(host, root, stream);
    if (world().rank == root) up(host, tensor, stream);
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    const Tensor host = down(tensor, stream);
    inner_->broadcast(host, root, stream);
    if (world().rank != root) up(host, tensor, stream);
  }

 private:
  Tensor down(const Tensor& tensor, Stream& stream) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    const std::size_t bytes = tensor.count * sizeof(float);
    if (memory_.bytes().size() < bytes) {
      await_all(stream);  // copies to the device may still read the old memory
      memory_ = device_.allocate(bytes, MemoryKind::pinned);
    }
    const auto host = memory_.bytes().first(bytes);
    if (bytes > 0) stream.copy(host, bytes_of(tensor));
    await_all(stream);
    return {host.data(), tensor.count, DType::f32};
  }
  void await_all(Stream& stream) {
    stream.record(*reached_);
    reached_->wait_until(Time::max());
  }
  static void up(const Tensor& host, const Tensor& tensor, Stream& stream) {
    if (tensor.count > 0) stream.copy(bytes_of(tensor), bytes_of(host));
  }

  Device& device_;
  const std::unique_ptr<Collective> inner_;
  const std::unique_ptr<Event> reached_;
  Buffer memory_;  ///< grows on request and never shrinks
};

}  // namespace

StagedGroup::StagedGroup(std::span<Device* const> devices, std::int32_t first_rank,
                         std::unique_ptr<CollectiveGroup> inner)
    : devices_(devices.begin(), devices.end()), first_rank_(first_rank), inner_(std::move(inner)) {}

std::unique_ptr<Collective> StagedGroup::join(std::int32_t rank) {
  Device& device = *devices_[static_cast<std::size_t>(rank - first_rank_)];
  return std::make_unique<StagedCollective>(device, inner_->join(rank));
}

}  // namespace penstock::collectives

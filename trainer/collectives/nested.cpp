// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/nested.h"

#include <utility>

#include "dataflow/error.h"

namespace penstock::collectives {
namespace {

/// Every call ends with a meeting inside, so that only one thread of a process at a time calls
/// across. Without `inside`, the process has one thread.
class NestedCollective final : public Collective {
 public:
  NestedCollective(std::unique_ptr<Collective> inside, Device& device, Collective& across)
      : inside_(std::move(inside)),
        thread_(inside_ ? inside_->world().rank : 0),
        threads_(inside_ ? inside_->world().size : 1),
        device_(device),
        across_(across),
        settled_(device.make_event()) {}

  World world() const noexcept override {
    const World processes = across_.world();
    return {processes.rank * threads_ + thread_, processes.size * threads_};
  }
  bool recordable() const noexcept override {
    return (!inside_ || inside_->recordable()) && across_.recordable();
  }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    if (inside_) inside_->reduce_sum(tensor, 0, stream);
    if (thread_ == 0) across_.all_reduce_sum(tensor, stream);
    if (inside_) inside_->broadcast(tensor, 0, stream);
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    if (!inside_) return across_.reduce_sum(tensor, root, stream);
    const std::int32_t process = root / threads_, thread = root % threads_;
    // The thread that adds for its process in place of a root keeps its own tensor.
    const bool restores = thread_ == thread && across_.world().rank != process;
    if (restores) save(tensor, stream);
    inside_->reduce_sum(tensor, thread, stream);
    if (thread_ == thread) across_.reduce_sum(tensor, process, stream);
    if (restores) restore(tensor, stream);
    inside_->all_reduce_sum({}, stream);
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    const std::int32_t process = root / threads_, thread = root % threads_;
    // A thread that is late holds back the other processes, too.
    if (inside_) inside_->all_reduce_sum({}, stream);
    if (thread_ == thread) across_.broadcast(tensor, process, stream);
    if (inside_) inside_->broadcast(tensor, thread, stream);
  }

 private:
  void save(const Tensor& tensor, Stream& stream) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    const std::size_t bytes = tensor.count * sizeof(float);
    if (saved_.bytes().size() < bytes) {
      settle(stream, *settled_);  // earlier copies no longer use the old memory
      saved_ = device_.allocate(bytes, MemoryKind::device);
    }
    if (bytes > 0) stream.copy(saved_.bytes().first(bytes), bytes_of(tensor));
  }
  void restore(const Tensor& tensor, Stream& stream) {
    const std::span<std::byte> bytes = bytes_of(tensor);
    if (!bytes.empty()) stream.copy(bytes, saved_.bytes().first(bytes.size()));
  }

  const std::unique_ptr<Collective> inside_;
  const std::int32_t thread_, threads_;
  Device& device_;
  Collective& across_;
  const std::unique_ptr<Event> settled_;
  Buffer saved_;
};

}  // namespace

NestedGroup::NestedGroup(std::unique_ptr<CollectiveGroup> inside, std::span<Device* const> devices,
                         Collective& across)
    : inside_(std::move(inside)), devices_(devices.begin(), devices.end()), across_(across) {
  PENSTOCK_ASSERT(inside_ != nullptr || devices_.size() == 1);
}

std::unique_ptr<Collective> NestedGroup::join(std::int32_t rank) {
  const auto threads = static_cast<std::int32_t>(devices_.size());
  PENSTOCK_ASSERT(rank / threads == across_.world().rank);
  const std::int32_t thread = rank % threads;
  return std::make_unique<NestedCollective>(inside_ ? inside_->join(thread) : nullptr,
                                            *devices_[static_cast<std::size_t>(thread)], across_);
}

}  // namespace penstock::collectives

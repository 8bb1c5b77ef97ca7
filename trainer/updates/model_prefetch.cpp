// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/model_prefetch.h"

#include <utility>

#include "dataflow/error.h"
#include "trainer/cluster/model_store.h"

namespace penstock::updates {

ModelPrefetch::ModelPrefetch(const UpdateContext& context, const PeerModels& models)
    : reader_(context.collective.world().rank),
      models_(models.store),
      clock_(models.clock),
      stream_(context.device->make_stream()),
      free_(context.device->make_event()),
      done_(context.device->make_event()) {
  thread_ = std::jthread(
      [this, participant = Clock::Participant(clock_)](const std::stop_token& stop) { run(stop); });
}

ModelPrefetch::~ModelPrefetch() = default;

void ModelPrefetch::begin(std::int32_t owner, const Tensor& into, Stream& stream) {
  stream.record(*free_);
  const std::lock_guard lock(mutex_);
  PENSTOCK_ASSERT(!wanted_);
  owner_ = owner;
  into_ = into;
  wanted_ = true;
  clock_.wake(gate_);
}

std::optional<std::int64_t> ModelPrefetch::finish(Stream& stream) {
  std::unique_lock lock(mutex_);
  clock_.wait(lock, gate_, {}, [this] { return !wanted_; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  stream.wait_for(*done_);
  return version_;
}

void ModelPrefetch::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (clock_.wait(lock, gate_, stop, [this] { return wanted_; }) && !stop.stop_requested()) {
    lock.unlock();
    std::optional<std::int64_t> version;
    std::exception_ptr failure;
    try {
      stream_->wait_for(*free_);
      version = models_.read(reader_, owner_, into_, *stream_);
      stream_->record(*done_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    version_ = version;
    failure_ = failure;
    wanted_ = false;
    clock_.wake(gate_);
  }
}

}  // namespace penstock::updates

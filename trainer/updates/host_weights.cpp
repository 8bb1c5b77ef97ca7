// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/host_weights.h"

#include <algorithm>
#include <utility>

#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

Tensor pinned(Device& device, const Tensor& like, Buffer& memory) {
  if (like.count == 0) return {};
  memory = device.allocate(like.count * sizeof(float), MemoryKind::pinned);
  std::ranges::fill(memory.bytes(), std::byte{});  // gaps between parameters are copied, too
  return {memory.bytes().data(), like.count};
}

class UpdateOnHost final : public UpdateStrategy {
 public:
  UpdateOnHost(const HostHome& home, std::unique_ptr<UpdateStrategy> inner)
      : home_(home),
        inner_(std::move(inner)),
        plan_(home.weights.on_device(), home.limits),
        progress_(plan_),
        host_stream_(home.host.make_stream()),
        copies_(home.device.make_stream()),
        backward_done_(home.device.make_event()) {
    for (std::size_t i = 0; i < plan_.buckets().size(); ++i) {
      complete_.push_back(home.device.make_event());
      copied_.push_back(home.device.make_event());
    }
  }

  void start(Executable& executable, Stream& stream) override {
    inner_->start(executable, *host_stream_);
    home_.weights.hand_over_statistics(stream);
    executable.group_gradients(plan_.parameters());
    give_weights(stream);
  }
  /// The host waits for the device in each step.
  bool recordable() const noexcept override { return false; }

  GradientReady gradient_ready(Stream& stream) override {
    progress_.begin();
    reported_ = 0;
    return [this, &stream](std::size_t parameter) {
      for (const std::size_t end = progress_.complete(parameter); reported_ < end; ++reported_) {
        stream.record(*complete_[reported_]);
      }
    };
  }

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    for (std::size_t i = reported_; i < complete_.size(); ++i) stream.record(*complete_[i]);
    stream.record(*backward_done_);
    take_gradients();
    backward_done_->wait_until(Time::max());  // the update writes to `result`, as the stream does
    inner_->finish_step(executable, *host_stream_, result);
    give_weights(stream);
  }

  KeptArenas kept(const ParameterSet& set) override {
    const KeptArenas kept = inner_->kept(set);  // may have fetched newer weights
    give_weights(*copies_);
    settle(*copies_, *copied_.front());
    return kept;
  }
  void resume() override { inner_->resume(); }

 private:
  void take_gradients() {
    const ParameterSet &host = home_.weights.parameters(), &device = home_.weights.on_device();
    const auto buckets = plan_.buckets();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const Tensor& from = buckets[i].gradients;
      copies_->wait_for(*complete_[i]);
      copy(moved_to(host.gradients, from, device.gradients), from, *copies_);
      copies_->record(*copied_[i]);
    }
    const GradientReady ready = inner_->gradient_ready(*host_stream_);
    for (std::size_t i = 0, parameter = 0; i < buckets.size(); ++i) {
      copied_[i]->wait_until(Time::max());
      for (std::size_t k = 0; k < buckets[i].parameters; ++k, ++parameter) {
        if (ready) ready(parameter);
      }
    }
  }
  void give_weights(Stream& stream) {
    copy(home_.weights.on_device().weights, home_.weights.parameters().weights, stream);
    const Tensor scale = home_.optimizer.state().loss_scale;
    if (home_.loss_scale.count > 0) copy(home_.loss_scale, scale, stream);
  }

  const HostHome home_;
  const std::unique_ptr<UpdateStrategy> inner_;
  const BucketPlan plan_;
  BucketProgress progress_;
  std::size_t reported_ = 0;  // buckets, in the current step or recording
  const std::unique_ptr<Stream> host_stream_, copies_;
  const std::unique_ptr<Event> backward_done_;
  std::vector<std::unique_ptr<Event>> complete_, copied_;  // by bucket
};

}  // namespace

HostWeights::HostWeights(std::unique_ptr<Executable> on_device, Device& device)
    : on_device_(std::move(on_device)) {
  const ParameterSet& set = on_device_->parameters();
  set_ = in_arenas(set, pinned(device, set.weights, weights_),
                   pinned(device, set.gradients, gradients_));
  set_.running = pinned(device, set.running, running_);
  for (Parameter& buffer : set_.buffers) {
    buffer.weight = moved_to(set_.running, buffer.weight, set.running);
  }
}

void HostWeights::hand_over_statistics(Stream& stream) {
  const ParameterSet& set = on_device_->parameters();
  copy(set.running, set_.running, stream);
  set_.running = set.running;
  set_.buffers = set.buffers;
}

std::unique_ptr<UpdateStrategy> update_on_host(const HostHome& home,
                                               std::unique_ptr<UpdateStrategy> inner) {
  return std::make_unique<UpdateOnHost>(home, std::move(inner));
}

}  // namespace penstock::updates

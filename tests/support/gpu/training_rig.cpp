// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/training_rig.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "dataflow/batch_ring.h"
#include "dataflow/stager.h"
#include "tests/support/rank_threads.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/initialise.h"
#include "trainer/updates/arena_copy.h"
#include "trainer/updates/host_weights.h"

namespace penstock::gpu {
namespace {

std::vector<double> read(Executable& executable, const ParameterSpec& spec, const Tensor& tensor) {
  std::vector<float> plain(static_cast<std::size_t>(spec.count()));
  executable.read(spec, tensor, plain);
  return {plain.begin(), plain.end()};
}

}  // namespace

/// Learns the addresses of the replica's results: one per slot, side by side.
class TrainingRig::Noting final : public UpdateStrategy {
 public:
  Noting(std::unique_ptr<UpdateStrategy> strategy, std::atomic<StepResult*>& first)
      : strategy_(std::move(strategy)), first_(first) {}
  void start(Executable& executable, Stream& stream) override {
    strategy_->start(executable, stream);
  }
  GradientReady gradient_ready(Stream& stream) override {
    return strategy_->gradient_ready(stream);
  }
  bool recordable() const noexcept override { return strategy_->recordable(); }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    if (first_ == nullptr || &result < first_) first_ = &result;
    strategy_->finish_step(executable, stream, result);
  }

 private:
  std::unique_ptr<UpdateStrategy> strategy_;
  std::atomic<StepResult*>& first_;
};

struct TrainingRig::Rank {
  HostDriver* driver = nullptr;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Collective> collective;
  std::unique_ptr<GradientExchange> exchange;
  std::unique_ptr<UpdateStrategy> update;
  std::unique_ptr<BatchRing> ring;
  std::unique_ptr<Stager> stager;
  std::unique_ptr<Replica> replica;
  std::atomic<StepResult*> first_result = nullptr;
  Leg leg{};
  std::vector<StepResult> results{};
};

TrainingRig::TrainingRig(const Graph& graph, const RigOptions& options,
                         const HostMachineOptions& machine)
    : graph_(graph), options_(options), library_(std::make_shared<HostDriverLibrary>(machine)) {
  backend_ = std::make_unique<GpuBackend>(
      library_, Options("gpu", kOptions, parse_component(options.backend)));
  ExecutableSpec spec{.batch = {.images = options.images,
                                .image = graph.input_shape(),
                                .classes = graph.nodes().back().shape.channels},
                      .precision = options.precision,
                      .local_ranks = options.ranks,
                      .seed = 1,
                      .loss_scale = options.loss_scale,
                      .loss_scale_count_to = options.loss_scale_count_to};
  const OptimizerEntry& optimizer = find_entry(optimizer_table(), options.optimizer);
  const Options optimizer_options(optimizer.name, optimizer.options, {});
  const ComponentText update_text = parse_component(options.update);
  const UpdateEntry& update = find_entry(update_table(), update_text.name);
  const Options update_options(update.name, update.options, update_text);
  const bool on_host = update.in_host_memory != nullptr && update.in_host_memory(update_options);
  std::vector<Device*> devices;
  for (std::int32_t index = 0; index < options.ranks; ++index) {
    Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>());
    library_->on_open = [&](HostDriver& driver) { rank.driver = &driver; };
    rank.device = backend_->open(index);
    devices.push_back(rank.device.get());
  }
  group_ = on_host ? make_thread_group(std::vector<Device*>(devices.size(), &host_), {}, clock_,
                                       stop_.get_token())
                   : backend_->make_group(devices, {.exchange = options.exchange}, clock_,
                                          stop_.get_token());
  host_ring_ = std::make_unique<BatchRing>(spec.batch, options.host_slots, *devices.front(),
                                           MemoryKind::pinned, devices, Order::strict, clock_);
  for (std::int32_t index = 0; index < options.ranks; ++index) {
    Rank& rank = rank_of(index);
    rank.executable = backend_->compile(graph_, spec, *rank.device);
    if (on_host) {
      rank.executable =
          std::make_unique<updates::HostWeights>(std::move(rank.executable), *rank.device);
    }
    initialise(*rank.executable, graph_, 1 + static_cast<std::uint64_t>(index));
    rank.optimizer = backend_->make_optimizer({optimizer, optimizer_options}, spec, *rank.device);
    Tensor loss_scale;
    if (on_host) {
      loss_scale = rank.optimizer->state().loss_scale;
      rank.optimizer =
          make_host_optimizer({optimizer, optimizer_options}, serial_for, finite_rules(spec));
    }
    rank.collective = group_->join(index);
    if (options.buckets && !on_host) {
      rank.exchange = std::make_unique<StreamExchange>(
          *rank.collective, rank.executable->parameters(), *rank.device, clock_, *options.buckets,
          options.device_slots);
    }
    rank.update = update.make({.collective = *rank.collective,
                               .optimizer = *rank.optimizer,
                               .local_ranks = options.ranks,
                               .options = update_options,
                               .exchange = rank.exchange.get(),
                               .device = on_host ? &host_ : rank.device.get()});
    if (on_host) {
      rank.update = updates::update_on_host(
          {static_cast<updates::HostWeights&>(*rank.executable), *rank.device, host_,
           *rank.optimizer, options.buckets.value_or(BucketLimits{}), loss_scale},
          std::move(rank.update));
    }
    rank.update = std::make_unique<Noting>(std::move(rank.update), rank.first_result);
    Device* const device = rank.device.get();
    rank.ring =
        std::make_unique<BatchRing>(spec.batch, options.device_slots, *device, MemoryKind::device,
                                    std::span(&device, 1), Order::relaxed, clock_);
    rank.stager =
        std::make_unique<Stager>(*host_ring_, static_cast<std::size_t>(index), *rank.ring, *device);
    rank.replica = std::make_unique<Replica>(
        *rank.ring, *device,
        Replica::Parts{
            *rank.executable, *rank.optimizer, *rank.update, options.hyper,
            options.record_update && rank.collective->recordable() && rank.update->recordable()},
        Phase::train, clock_);
  }
}

TrainingRig::~TrainingRig() = default;

void TrainingRig::feed(const std::vector<PlainBatch>& batches, std::exception_ptr failure) {
  try {
    for (const PlainBatch& batch : batches) publish(batch);
    if (failure != nullptr) std::rethrow_exception(failure);
    host_ring_->close();
  } catch (...) {
    host_ring_->fail(std::current_exception());
  }
}

void TrainingRig::publish(const PlainBatch& from) {
  HostDriver& driver = *ranks_.front()->driver;
  WriteLease lease = host_ring_->acquire(stop_.get_token());
  if (!lease) return;
  lease.await();
  const std::span<std::byte> pixels = lease.batch().pixels;
  const auto labels = std::as_writable_bytes(lease.batch().labels);
  driver.host_writes(pixels);
  driver.host_writes(labels);
  std::memcpy(pixels.data(), from.pixels.data(), pixels.size());
  std::memcpy(labels.data(), from.labels.data(), labels.size());
  lease.batch().valid = from.valid;
  std::move(lease).publish();
}

void TrainingRig::train(Rank& rank) {
  rank.replica->start();
  const auto on_step = [&](std::size_t step, const StepTimes& times) {
    const StepResult* const result = rank.first_result.load() + step % options_.device_slots;
    rank.driver->host_reads(std::as_bytes(std::span(result, 1)));
    rank.results.push_back(times.result);
  };
  rank.replica->run(std::numeric_limits<std::int16_t>::max(), rank.leg, on_step, stop_.get_token());
}

void TrainingRig::run(const std::vector<PlainBatch>& batches, std::exception_ptr failure) {
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { feed(batches, failure); });
    for (const std::unique_ptr<Rank>& rank : ranks_) {
      threads.emplace_back([&] { rank->stager->run(stop_.get_token()); });
      threads.emplace_back([&] {
        try {
          train(*rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
          stop_.request_stop();  // either all ranks or none make a step
        }
      });
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

const std::vector<StepResult>& TrainingRig::results(std::int32_t rank) const {
  return rank_of(rank).results;
}

PlainTensors TrainingRig::weights(std::int32_t index) {
  const Rank& rank = rank_of(index);
  const ParameterSet& set = rank.executable->parameters();
  PlainTensors tensors;
  for (const ParameterSpec& spec : graph_.parameters()) {
    const auto found = std::ranges::find(set.parameters, spec.name,
                                         [](const Parameter& of) { return of.spec.name; });
    tensors.push_back(read(*rank.executable, spec, found->weight));
  }
  return tensors;
}

PlainTensors TrainingRig::state(std::int32_t index) {
  const Rank& rank = rank_of(index);
  const ParameterSet& set = rank.executable->parameters();
  rank.optimizer->prepare(set);
  PlainTensors tensors;
  for (const Parameter& parameter : set.parameters) {
    tensors.push_back(
        read(*rank.executable, parameter.spec,
             updates::moved_to(rank.optimizer->state().arenas[0], parameter.weight, set.weights)));
  }
  return tensors;
}

LossScale TrainingRig::loss_scale(std::int32_t index) {
  Rank& rank = rank_of(index);
  return read_loss_scale(rank.optimizer->state().loss_scale, *rank.device);
}

ExchangeTimes TrainingRig::exchange_times(std::int32_t rank) const {
  return rank_of(rank).exchange->times();
}
bool TrainingRig::overlaps(std::int32_t rank) const { return rank_of(rank).collective->overlaps(); }

HostDriver& TrainingRig::driver(std::int32_t rank) { return *rank_of(rank).driver; }
Executable& TrainingRig::executable(std::int32_t rank) { return *rank_of(rank).executable; }
Device& TrainingRig::device(std::int32_t rank) { return *rank_of(rank).device; }
std::vector<std::string> TrainingRig::races() { return ranks_.front()->driver->races(); }

}  // namespace penstock::gpu

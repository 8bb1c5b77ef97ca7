// SPDX-License-Identifier: Apache-2.0
// The backend interface. A backend compiles a graph into steps for one kind of device.
//
// To add one: a file in backends/ that ends in `extern constinit const BackendEntry
// NAME_backend{...}`, and one line `penstock_component(backend NAME)` there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/device.h"
#include "dataflow/entry.h"
#include "dataflow/mark.h"
#include "dataflow/options.h"
#include "trainer/activity.h"
#include "trainer/graph.h"

namespace penstock {

class CollectiveGroup;
class Optimizer;
struct OptimizerChoice;

/// The precision of activations and of the operands of matrix products. The weights stay in f32.
enum class Precision : std::uint8_t { f32, tf32, f16, bf16 };
std::string_view to_string(Precision precision);

/// train: forward with the batch's statistics, and backward. evaluate: forward with the running
/// statistics and without dropout. forward_only: forward with the batch's statistics, no loss.
enum class Phase : std::uint8_t { train, evaluate, forward_only };

/// Device memory. The backend chooses the order of the elements.
struct Tensor {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
};
/// The elements of an f32 tensor.
inline std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data), tensor.count * sizeof(float)};
}
/// The number of elements of `arena` in front of `part`.
inline std::size_t offset_in(const Tensor& arena, const Tensor& part) {
  return static_cast<std::size_t>(static_cast<const float*>(part.data) -
                                  static_cast<const float*>(arena.data));
}

/// One tensor of weights and its gradient. The backend chooses the order of the elements, which is
/// the same for both. `count` may exceed spec.count(): the padding elements are zero and stay zero
/// under element-wise updates.
struct Parameter {
  ParameterSpec spec;
  Tensor weight, gradient;
};

/// All weights of an executable. The three arenas are flat f32 and parameters are ranges of them.
/// Their order is the order in which backward finishes the gradients, so that a bucket of gradients
/// is one range.
struct ParameterSet {
  std::vector<Parameter> parameters;
  std::vector<Parameter> buffers;  ///< running statistics, in plain order; no gradients
  Tensor weights, gradients, running;
};

/// The result of a step. The stream writes it, so it lies in pinned memory.
struct StepResult {
  float loss = 0;     ///< mean cross-entropy of the batch
  float l2_loss = 0;  ///< weight decay / 2 * sum of squares of the weights before the update
  std::int32_t top1 = 0, top5 = 0;  ///< images whose label has the highest logit, and one of the
                                    ///< five highest
  std::int32_t images = 0;
  bool finite = true;  ///< false: the loss or a 16-bit gradient is NaN or infinite; if it is a
                       ///< gradient, the update was skipped
};

/// Called while a step is enqueued, after the work that completes this parameter's gradient has
/// been enqueued. The callback may only enqueue work. The function may be empty.
using GradientReady = std::function<void(std::size_t parameter)>;

/// A graph compiled for one device. Owns the weights, activations and workspaces. Only one thread
/// may use it at a time.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Empty if the device computes nothing.
  virtual const ParameterSet& parameters() const noexcept = 0;
  /// Enqueues a step of one batch and returns at once. `batch` and `result` outlive the work: a
  /// program recorded from this call reads and writes their contents again at each launch. Rows
  /// beyond batch.valid do not count towards loss, gradients and accuracies. If a label is not a
  /// valid class, throws DataError; a device that runs behind the host reports a loss that is not
  /// finite instead.
  virtual void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
                   StepResult& result) = 0;
  /// read() copies from device memory to plain order (ParameterSpec::shape, row major); write()
  /// copies from plain order to device memory. `spec` describes a parameter or buffer, and the
  /// tensor has its layout. The device is idle; the copy is done on return.
  virtual void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) = 0;
  virtual void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) = 0;
  /// Sets the number of the next training step, which dropout depends on. Each training step
  /// increments it.
  virtual void set_step(std::int64_t step) = 0;
  /// From the next recording on, gradients are exchanged in consecutive groups; `parameters` holds
  /// the number of parameters in each group. `ready` is called for a group as soon as its gradients
  /// are complete. Without this call, gradients that need a last pass may all be reported together.
  virtual void group_gradients(std::span<const std::size_t> /*parameters*/) {}
};

/// How to compile a graph.
struct ExecutableSpec {
  BatchSpec batch{};
  double p100_img_per_s = 0;  ///< the model's (trainer/model.h); emulated devices compare by it
  Precision precision = Precision::f32;
  std::int32_t threads = 1;      ///< host threads that compute, if host cores are the device
  std::int32_t local_ranks = 1;  ///< executables that share the machine's memory
  std::uint64_t seed = 1;        ///< seed of dropout; initialise() sets the weights
  float loss_scale = 1;  ///< factor on gradients while they are 16 bits wide; parameters' gradients
                         ///< no longer contain it
  /// Above 0: the loss scale is automatic (trainer/loss_scale.h) and this is the number of steps it
  /// counts. Has an effect only if the backend's optimizer supports it.
  std::int32_t loss_scale_count_to = 0;
  /// The update keeps the weights in host memory. A device that computes nothing then has arenas,
  /// so that copies of gradients and weights take their time.
  bool weights_on_host = false;
  std::filesystem::path cache_directory{};  ///< for results of the compilation; empty: no cache
  /// Called at times from the compiling thread, with done <= total, until Backend::compile returns.
  /// An exception from it ends the compilation. May be empty.
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

enum class WireFormat : std::uint8_t;  // wire_format.h

/// The user's choices for the exchange among ranks.
struct ExchangeSpec {
  WireFormat wire{};  ///< format of gradients between ranks; f32 by default
  bool nccl = false;  ///< true: through NVIDIA's NCCL, or fail
};

/// Makes an exchange among ranks that are threads of this process, with one device per rank. It
/// goes through host memory. A stop request makes every waiting rank leave with an Error. Defined
/// in collectives/threads.cpp.
std::unique_ptr<CollectiveGroup> make_thread_group(std::span<Device* const> devices,
                                                   const ExchangeSpec& spec, Clock& clock,
                                                   std::stop_token stop);

/// The ranks of several processes, from the view of one process.
struct ProcessRanks {
  std::int32_t first = 0;  ///< first rank of this process
  std::int32_t size = 1;   ///< ranks of all processes
  /// Returns the text of every process, in the order of their ranks. All processes call it
  /// together. Throws TimeoutError if one does not arrive.
  std::function<std::vector<std::string>(std::string_view text)> all_gather{};
  /// Makes the exchange of tensors in host memory.
  std::function<std::unique_ptr<CollectiveGroup>()> make_host_group{};
};

/// Who exchanges with whom, and how.
struct GroupSpec {
  ExchangeSpec exchange{};                  ///< equal in all processes
  const ProcessRanks* processes = nullptr;  ///< null: the ranks are threads of this process
};

/// The state of the devices during a measurement.
struct Condition {
  std::map<std::string, double> facts{};  ///< figures with their unit in the name
  std::vector<std::string> notes{};       ///< sentences for readers of the numbers
};

/// What devices tell about themselves. By default nothing.
class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  /// Facts about the device for the result: figures with their unit in the name.
  virtual std::map<std::string, double> facts() const { return {}; }
  /// Sentences for the result about choices that the backend made for the user.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The state of the devices between two moments of the steady clock.
  virtual Condition condition(Time /*from*/, Time /*to*/) const { return {}; }
  /// The marks of the profiler for this kind of device; null: none.
  virtual const MarkFunctions* marks() const noexcept { return nullptr; }
  /// Records what the devices do until finish_activity. The devices are idle at both ends. Returns
  /// the reason if recording is impossible, else an empty string. Devices without activity records
  /// return an empty string too.
  virtual std::string start_activity(ActivityDetail) { return {}; }
  virtual std::vector<ActivityRecord> finish_activity() { return {}; }
};

/// A kind of device that can train.
class Backend : public DeviceMonitor {
 public:
  virtual std::int32_t device_count() const = 0;
  /// `ordinal` is in [0, device_count). Throws DeviceError.
  virtual std::unique_ptr<Device> open(std::int32_t ordinal) = 0;
  /// Throws ConfigError if batch and model exceed the device's memory; the message names a batch
  /// size that fits. Throws Unavailable if the device lacks the precision. Several threads may call
  /// it at the same time, each for another device, unless the device consists of the host's cores.
  virtual std::unique_ptr<Executable> compile(const Graph&, const ExecutableSpec&, Device&) = 0;
  virtual std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice&, const ExecutableSpec&,
                                                    Device&) = 0;
  /// Makes the exchange among ranks, one per device; `devices` are the devices of this process. If
  /// there are several processes, all call it together. A stop request makes every waiting rank
  /// leave with an Error. By default tensors lie in host memory.
  virtual std::unique_ptr<CollectiveGroup> make_group(std::span<Device* const> devices,
                                                      const GroupSpec& spec, Clock& clock,
                                                      std::stop_token stop);
};

struct BackendEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  /// Steps use the machine's cores: threads are then divided between computing and feeding.
  bool computes_on_host = false;
  /// Steps take a prescribed time: their rate is an input of the run, not a measurement.
  bool emulates = false;
  bool preferred = false;  ///< `--device auto` chooses it on a machine that has such a device
  /// Backend::make_group() handles ExchangeSpec. Otherwise gradients are in host memory, where
  /// algorithms over links exchange them.
  bool exchanges_gradients = false;
  /// Throws Unavailable if the machine lacks such a device.
  std::unique_ptr<Backend> (*make)(const Options&, Clock&) = nullptr;
};

/// Every backend of this program. Generated from the component lists.
const Table<BackendEntry>& backend_table();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// A backend turns a graph into steps on its kind of device.
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

/// Of activations and of the operands of matrix products. Weights are kept in f32 beside it.
enum class Precision : std::uint8_t { f32, tf32, f16, bf16 };
std::string_view to_string(Precision precision);

/// train: forward with the batch's statistics, and backward. evaluate: forward with the running
/// statistics and without dropout. forward_only: forward with the batch's statistics, no loss.
enum class Phase : std::uint8_t { train, evaluate, forward_only };

/// Device memory; elements lie in the backend's own order.
struct Tensor {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
};

/// One tensor of weights and its gradient. Element order is the backend's own, and the same for
/// both; `count` may exceed spec.count(): what lies between is zero and stays so under element-wise
/// updates.
struct Parameter {
  ParameterSpec spec;
  Tensor weight, gradient;
};

/// All weights of an executable. The three arenas are flat f32; parameters are ranges of them, in
/// the order in which backward finishes their gradients, so that a bucket of gradients is a range.
struct ParameterSet {
  std::vector<Parameter> parameters;
  std::vector<Parameter> buffers;  ///< running statistics, in plain order; no gradients
  Tensor weights, gradients, running;
};

/// What a step leaves behind; written by the stream, so that it lies in pinned memory.
struct StepResult {
  float loss = 0;     ///< mean cross-entropy of the batch
  float l2_loss = 0;  ///< weight decay / 2 * sum of squares of the weights before the update
  std::int32_t top1 = 0, top5 = 0;  ///< images whose label has the highest, or one of the five
                                    ///< highest logits
  std::int32_t images = 0;
  bool finite = true;  ///< false: the loss, or a gradient of 16 bits, is not a number or infinite;
                       ///< for the latter the update was skipped
};

/// Told, while a step is enqueued, that the work which completes this parameter's gradient has been
/// enqueued. May only enqueue. May be empty.
using GradientReady = std::function<void(std::size_t parameter)>;

/// A graph compiled for one device; owns weights, activations and workspaces. Used by one thread at
/// a time.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Empty on a device that computes nothing.
  virtual const ParameterSet& parameters() const noexcept = 0;
  /// Enqueues a step of one batch and returns at once. `batch` and `result` outlive the work:
  /// programs recorded from this call run again with what they then hold. Rows beyond batch.valid
  /// do not count towards loss, gradients and accuracies. Labels that are no classes: DataError,
  /// or, from devices that run behind the host, a loss that is not finite.
  virtual void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
                   StepResult& result) = 0;
  /// Copies a tensor that has the layout of the parameter or buffer that `spec` describes, out of
  /// or into device memory, to or from plain order (ParameterSpec::shape, row major). The device is
  /// idle; the copy is done on return.
  virtual void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) = 0;
  virtual void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) = 0;
  /// The number of the next training step, which dropout depends on; it counts on from there.
  virtual void set_step(std::int64_t step) = 0;
  /// From the next recording on, gradients are exchanged in groups of these many parameters, in
  /// their order: `ready` is told of a group as soon as its gradients are complete. Without this
  /// call, gradients that need a last pass may all be reported together.
  virtual void group_gradients(std::span<const std::size_t> /*parameters*/) {}
};

/// How to compile.
struct ExecutableSpec {
  BatchSpec batch{};
  Precision precision = Precision::f32;
  std::int32_t threads = 1;      ///< of the host that compute, on devices made of its cores
  std::int32_t local_ranks = 1;  ///< executables that share the machine's memory
  std::uint64_t seed = 1;        ///< of dropout; weights are set by initialise()
  float loss_scale = 1;  ///< of gradients on their way through 16 bits; parameters' have it no more
  /// Above 0: the scale adapts itself (trainer/loss_scale.h), after so many counted steps; as far
  /// as the optimizer that the backend makes has one.
  std::int32_t loss_scale_count_to = 0;
  std::filesystem::path cache_directory{};  ///< for what compiling found out; empty: nowhere
  /// Called now and then from the compiling thread, with done <= total, until Backend::compile
  /// returns. What it throws ends the compilation. May be empty.
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

enum class WireFormat : std::uint8_t;  // collectives/wire_format.h

/// How ranks exchange, as far as the user says.
struct ExchangeSpec {
  WireFormat wire{};  ///< gradients on their way; f32 unless told otherwise
  bool nccl = false;  ///< through NVIDIA's library, or not at all
};

/// The ranks of a run of several processes, as those of one of them see them.
struct ProcessRanks {
  std::int32_t first = 0;  ///< of this process
  std::int32_t size = 1;   ///< of all processes
  ExchangeSpec spec{};     ///< the same in all
  /// Every process's text, in the order of their ranks. All of them call it together. Throws
  /// TimeoutError where one does not come.
  std::function<std::vector<std::string>(std::string_view text)> all_gather{};
  /// Makes the exchange of tensors in the host's memory.
  std::function<std::unique_ptr<CollectiveGroup>()> make_host_group{};
};

/// How the devices were while something was measured.
struct Condition {
  std::map<std::string, double> facts{};  ///< figures with their unit in the name
  std::vector<std::string> notes{};       ///< what readers of the numbers should know, in sentences
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::int32_t device_count() const = 0;
  /// Ordinal in [0, device_count). Throws DeviceError.
  virtual std::unique_ptr<Device> open(std::int32_t ordinal) = 0;
  /// Throws ConfigError when batch and model do not fit the device's memory, with a batch that
  /// does; Unavailable for a precision that the device lacks. Unless the device is made of the
  /// host's cores, several threads may call it at the same time, each for another device.
  virtual std::unique_ptr<Executable> compile(const Graph&, const ExecutableSpec&, Device&) = 0;
  virtual std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice&, const ExecutableSpec&,
                                                    Device&) = 0;
  /// The exchange among ranks that are threads of this process, one device each; a stop request
  /// lets every waiting rank leave with an Error. Goes through the host's memory unless a backend
  /// knows better.
  virtual std::unique_ptr<CollectiveGroup> make_group(std::span<Device* const> devices,
                                                      const ExchangeSpec& spec, Clock& clock,
                                                      std::stop_token stop);
  /// The same among the ranks of several processes, with `devices` those of this one: all of them
  /// call it together. Tensors lie in the host's memory unless a backend knows better.
  virtual std::unique_ptr<CollectiveGroup> make_process_group(std::span<Device* const> devices,
                                                              const ProcessRanks& ranks,
                                                              Clock& clock, std::stop_token stop);
  /// What a result should say about the device: figures with their unit in the name.
  virtual std::map<std::string, double> facts() const { return {}; }
  /// What was seen of its devices between two moments of the steady clock.
  virtual Condition condition(Time /*from*/, Time /*to*/) const { return {}; }
  /// Of the profiler that its kind of device has; null: none.
  virtual const MarkFunctions* marks() const noexcept { return nullptr; }
  /// Records what its devices do, from here to finish_activity; they are idle at both ends. Returns
  /// why that cannot be, or nothing; devices that have nothing to tell say nothing.
  virtual std::string start_activity(ActivityDetail) { return {}; }
  virtual std::vector<ActivityRecord> finish_activity() { return {}; }
  /// Sentences for it about what was chosen for the user.
  virtual std::vector<std::string> notes() const { return {}; }
};

struct BackendEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  /// Steps take the time of the machine's cores: threads are then shared out between computing and
  /// feeding.
  bool computes_on_host = false;
  /// Throws Unavailable where the machine lacks such a device.
  std::unique_ptr<Backend> (*make)(const Options&, Clock&) = nullptr;
};

/// Every backend of this program; generated from the component lists.
const Table<BackendEntry>& backend_table();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// A graph compiled on a backend, its weights, and batches in its device's memory. All values that
// tests pass or receive are in plain order, and in the graph's own order of parameters.
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "tests/support/plain_net.h"
#include "trainer/backend.h"

namespace penstock {

/// A backend that a numerical test suite can run on, or the reason why it cannot.
struct BackendSubject {
  std::string name;
  const BackendEntry* entry = nullptr;  ///< null: `reason` says why
  std::string reason{};

  friend std::ostream& operator<<(std::ostream& out, const BackendSubject& subject) {
    return out << subject.name;
  }
};

/// The plain backend, then the backends of the table that have weights.
std::vector<BackendSubject> backends_with_weights();
/// The gpu backend on the host, in variants that fuse all f16 convolutions that can be fused.
std::vector<BackendSubject> backends_that_fuse();
/// The cpu backend as it chooses layouts and products on CPUs with AMX. Empty if there is none.
std::vector<BackendSubject> backends_in_other_layouts();
/// Backends that compute nothing, are unavailable on this machine, or are known but missing.
std::vector<BackendSubject> backends_without_weights();

class CompiledGraph {
 public:
  /// Sets the weights of initialise() for seed 1. Throws what the backend throws.
  CompiledGraph(const BackendEntry& entry, const Graph& graph, const ExecutableSpec& spec);
  /// Compiles on device `ordinal` of a backend that other code uses, too.
  CompiledGraph(std::shared_ptr<Backend> backend, std::int32_t ordinal, const Graph& graph,
                const ExecutableSpec& spec);

  void set_weights(const PlainWeights& weights);
  /// Copies the batch into separate memory for each slot, runs, and waits for the device. The batch
  /// has one label per image of the executable.
  StepResult run(Phase phase, const PlainBatch& batch, std::int32_t slot = 0,
                 const GradientReady& ready = {});
  /// The result of the last run, in memory that the device can access, for a later update.
  StepResult& result() const noexcept {
    return *reinterpret_cast<StepResult*>(result_.bytes().data());
  }
  /// Blocks until all enqueued work is done.
  void wait() const;

  PlainTensors weights() const { return read(false); }
  PlainTensors gradients() const { return read(true); }
  PlainTensors buffers() const;
  /// A copy of an arena in its order in memory.
  std::vector<float> copy_of(const Tensor& tensor) const;

  const Graph& graph() const noexcept { return graph_; }
  Executable& executable() const noexcept { return *executable_; }
  Device& device() const noexcept { return *device_; }
  Backend& backend() const noexcept { return *backend_; }
  Stream& stream() const noexcept { return *stream_; }

 private:
  struct Slot {
    Buffer pixels, labels;
  };
  PlainTensors read(bool gradient) const;
  void compile(std::int32_t ordinal);

  const Graph graph_;
  const ExecutableSpec spec_;
  SteadyClock clock_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Executable> executable_;
  std::map<std::int32_t, Slot> slots_;
  Buffer result_;                                // pinned
  std::map<std::string, std::size_t> index_of_;  // by a parameter's name, in the executable's order
};

/// The spec for compiling a graph for full batches of `images` byte images.
ExecutableSpec spec_for(const Graph& graph, std::int32_t images,
                        Precision precision = Precision::f32);

}  // namespace penstock

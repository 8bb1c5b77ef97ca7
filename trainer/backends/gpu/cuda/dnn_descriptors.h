// SPDX-License-Identifier: Apache-2.0
// Wraps cuDNN's backend API. In that API everything is a descriptor with attributes, which is made,
// filled and finalised. A descriptor keeps its parts alive only while it is being filled, so its
// owner must keep the parts too.
//
// A DnnGraph becomes cuDNN's operation graph. Tensors are laid out as N, H, W, C (weights as K, R,
// S, C) and aligned to 16 bytes. Their identifier is their index in DnnGraph::tensors + 1.
// Everything is computed in f32.
//
// Errors: DeviceError with the call and cuDNN's own text.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

/// Throws DeviceError if `status` is not success.
void check_dnn(cudnnStatus_t status, std::string_view call);

/// The version of the loaded library, such as "9.19.0".
std::string dnn_version_text();

/// Owns one descriptor. Move-only.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const noexcept { return descriptor_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  /// Sets one value of an enum, a float or a bool.
  template <typename Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value value) {
    set(name, type, 1, &value);
  }
  void set_integers(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
  void set_integer(cudnnBackendAttributeName_t name, std::int64_t value);
  void set_descriptor(cudnnBackendAttributeName_t name, const Descriptor& value);
  void set_descriptors(cudnnBackendAttributeName_t name, std::span<const Descriptor> values);
  void set_text(cudnnBackendAttributeName_t name, std::string_view text);

  std::int64_t integer(cudnnBackendAttributeName_t name) const;
  std::string text(cudnnBackendAttributeName_t name) const;
  /// Reads one value of an enum.
  template <typename Value>
  Value value(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    Value value{};
    read(name, type, 1, &value);
    return value;
  }
  /// Reads at most `most` values of an enum.
  template <typename Note>
  std::vector<Note> notes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t most) const {
    std::vector<Note> values(static_cast<std::size_t>(most));
    values.resize(static_cast<std::size_t>(read(name, type, most, values.data())));
    return values;
  }
  /// The number of values. For some attributes the library returns 0 although there are values.
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  Descriptor descriptor(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;
  std::vector<Descriptor> descriptors(cudnnBackendAttributeName_t name,
                                      cudnnBackendDescriptorType_t type, std::int64_t most) const;

  /// `what` names the descriptor in the error.
  void finalize(std::string_view what);
  /// For descriptors that the library may reject: rejection is not an error.
  cudnnStatus_t try_finalize() noexcept;

 private:
  std::int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    std::int64_t most, void* values) const;

  struct Destroy {
    void operator()(cudnnBackendDescriptor_t of) const { cudnnBackendDestroyDescriptor(of); }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

/// cuDNN's identifier of tensor `id` in a variant pack.
constexpr std::int64_t unique_id(DnnTensorId id) noexcept { return id + 1; }

/// A finalised cuDNN operation graph with all objects that it refers to.
class OperationGraph {
 public:
  /// `handle` belongs to the device that computes the graph. Null: no device; each later call then
  /// names a device's description. Throws DeviceError for a graph that cuDNN does not allow.
  OperationGraph(const DnnGraph& graph, cudnnHandle_t handle);

  const Descriptor& get() const noexcept { return graph_; }
  /// The tensors that have memory.
  const std::vector<DnnTensorId>& in_memory() const noexcept { return in_memory_; }

 private:
  std::vector<DnnTensorId> in_memory_;
  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  ///< of convolutions and pointwise operations
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

}  // namespace penstock::gpu

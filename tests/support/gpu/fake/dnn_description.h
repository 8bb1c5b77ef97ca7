// SPDX-License-Identifier: Apache-2.0
// A descriptor of the fake cuDNN: its attributes, and the results of finalising it.
#pragma once

#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu::fake {

/// The status and text of a cuDNN function that fails.
struct DnnFailure : std::runtime_error {
  DnnFailure(cudnnStatus_t of, const std::string& text) : std::runtime_error(text), status(of) {}
  const cudnnStatus_t status;
};

struct Description {
  struct Attribute {
    cudnnBackendAttributeType_t type{};
    std::vector<std::byte> values{};                          ///< for all types except descriptors
    std::vector<std::shared_ptr<const Description>> parts{};  ///< descriptors
  };
  cudnnBackendDescriptorType_t type{};
  bool finalised = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes{};
  std::shared_ptr<const DnnGraph> graph{};  ///< of a finalised operation graph

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  /// Both throw DnnFailure for an attribute that was not set.
  const Attribute& at(cudnnBackendAttributeName_t name) const;
  const Description& part(cudnnBackendAttributeName_t name) const { return *at(name).parts.at(0); }
  /// All values of an attribute that holds no descriptors.
  template <typename Value>
  std::vector<Value> values(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = at(name).values;
    std::vector<Value> values(bytes.size() / sizeof(Value));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <typename Value>
  Value value(cudnnBackendAttributeName_t name) const {
    return values<Value>(name).at(0);
  }
  template <typename Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type_of,
           std::span<const Value> given) {
    const auto bytes = std::as_bytes(given);
    attributes[name] = {.type = type_of, .values = {bytes.begin(), bytes.end()}};
  }
};

/// Rebuilds the DnnGraph from which dnn_descriptors.cpp made an operation graph's descriptor.
/// Throws DnnFailure if a descriptor in it is not valid.
DnnGraph graph_of(const Description& operation_graph);

}  // namespace penstock::gpu::fake

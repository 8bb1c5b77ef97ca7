// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/dnn_descriptors.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {

void check_dnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 2048> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  throw DeviceError(fmt::format("cuDNN {}: {} failed with {}{}{}", dnn_version_text(), call,
                                cudnnGetErrorString(status), text[0] == '\0' ? "" : ": ",
                                text.data()));
}

std::string dnn_version_text() {
  const std::size_t version = cudnnGetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_dnn(cudnnBackendCreateDescriptor(type, &descriptor_),
            fmt::format("cudnnBackendCreateDescriptor(type {})", static_cast<int>(type)));
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     std::int64_t count, const void* values) {
  check_dnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
            fmt::format("cudnnBackendSetAttribute(attribute {}, {} of type {})",
                        static_cast<int>(name), count, static_cast<int>(type)));
}

void Descriptor::set_integers(cudnnBackendAttributeName_t name,
                              std::span<const std::int64_t> values) {
  set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

void Descriptor::set_integer(cudnnBackendAttributeName_t name, std::int64_t value) {
  set(name, CUDNN_TYPE_INT64, value);
}

void Descriptor::set_descriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
}

void Descriptor::set_descriptors(cudnnBackendAttributeName_t name,
                                 std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& value : values) handles.push_back(value.get());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
      handles.data());
}

void Descriptor::set_text(cudnnBackendAttributeName_t name, std::string_view text) {
  set(name, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()), text.data());
}

std::int64_t Descriptor::read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              std::int64_t most, void* values) const {
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(descriptor_, name, type, most, &count, values),
            fmt::format("cudnnBackendGetAttribute(attribute {}, at most {} of type {})",
                        static_cast<int>(name), most, static_cast<int>(type)));
  return count < most ? count : most;
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  read(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

std::int64_t Descriptor::count(cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type) const {
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(descriptor_, name, type, 0, &count, nullptr),
            fmt::format("cudnnBackendGetAttribute(attribute {}, how many of type {})",
                        static_cast<int>(name), static_cast<int>(type)));
  return count;
}

std::string Descriptor::text(cudnnBackendAttributeName_t name) const {
  const std::int64_t size = count(name, CUDNN_TYPE_CHAR);
  std::string text(static_cast<std::size_t>(size), '\0');
  text.resize(static_cast<std::size_t>(read(name, CUDNN_TYPE_CHAR, size, text.data())));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

Descriptor Descriptor::descriptor(cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptorType_t type) const {
  Descriptor result(type);
  read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &result.descriptor_);
  return result;
}

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type,
                                                std::int64_t most) const {
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < most; ++i) {
    handles.push_back(results.emplace_back(type).get());
  }
  const std::int64_t count = read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  while (static_cast<std::int64_t>(results.size()) > count) results.pop_back();
  return results;
}

void Descriptor::finalize(std::string_view what) {
  check_dnn(try_finalize(), fmt::format("cudnnBackendFinalize({})", what));
}

cudnnStatus_t Descriptor::try_finalize() noexcept { return cudnnBackendFinalize(descriptor_); }

}  // namespace penstock::gpu

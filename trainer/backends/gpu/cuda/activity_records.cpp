// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/activity_records.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace penstock::gpu {
namespace {

/// Demangles a kernel's name.
std::string readable(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? plain.get() : name;
}

std::string copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy between devices";
    default:
      return "copy";
  }
}

/// Fills in the device, the stream and the times, which all kinds of records name alike.
template <typename Record>
bool place(const Record& record, Nanoseconds to_steady, ActivityRecord& ours) {
  if (record.start == 0 || record.end == 0) return false;
  const auto time = [&](std::uint64_t cupti) {
    return Time(Nanoseconds(static_cast<std::int64_t>(cupti)) + to_steady);
  };
  ours.device = static_cast<std::int32_t>(record.deviceId);
  ours.stream = record.streamId;
  ours.begin = time(record.start);
  ours.end = time(record.end);
  return true;
}

}  // namespace

bool to_activity(const CUpti_Activity& record, Nanoseconds to_steady, ActivityRecord& ours) {
  ours = {};
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      ours.kind = ActivityKind::kernel;
      ours.name = readable(kernel.name);
      return place(kernel, to_steady, ours);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
      ours.kind = ActivityKind::copy;
      ours.name = copy_name(copy.copyKind);
      ours.bytes = copy.bytes;
      return place(copy, to_steady, ours);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      ours.kind = ActivityKind::set;
      ours.name = "set";
      ours.bytes = set.bytes;
      return place(set, to_steady, ours);
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
      const auto& graph = reinterpret_cast<const CUpti_ActivityGraphTrace2&>(record);
      ours.kind = ActivityKind::graph;
      ours.name = fmt::format("graph {}", graph.graphId);
      return place(graph, to_steady, ours);
    }
    default:
      return false;
  }
}

}  // namespace penstock::gpu

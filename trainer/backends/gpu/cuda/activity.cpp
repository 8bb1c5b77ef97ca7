// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/activity.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

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

constexpr const char* kLibrary = "libcupti.so.13";
constexpr std::size_t kBufferBytes = std::size_t{8} << 20, kBufferAlignment = 8;

// Whole recorded graphs give one record each; their nodes give none.
constexpr std::array kPrograms = {CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
                                  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                  CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::span kOperations = std::span(kPrograms).subspan<1>();

/// The CUPTI functions that are used here. The library stays open until the program ends.
struct Cupti {
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiGetResultString) text = nullptr;
  std::string missing;  ///< why the functions are missing

  Cupti() {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      missing =
          fmt::format("{} cannot be loaded: {}; install CUPTI of CUDA 13", kLibrary, dlerror());
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing = fmt::format("{} has no {}", kLibrary, name);
    };
    find(register_clock, "cuptiActivityRegisterTimestampCallback");
    find(register_buffers, "cuptiActivityRegisterCallbacks");
    find(enable, "cuptiActivityEnable");
    find(disable, "cuptiActivityDisable");
    find(flush, "cuptiActivityFlushAll");
    find(next, "cuptiActivityGetNextRecord");
    find(timestamp, "cuptiGetTimestamp");
    find(text, "cuptiGetResultString");
  }
};

const Cupti& cupti() {
  static const Cupti functions;
  return functions;
}

std::string failure(const char* call, CUptiResult result) {
  const char* text = nullptr;
  if (cupti().text(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "no text";
  const char* const advice = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                                 ? "; another tool profiles this process, and CUPTI has one user"
                                 : "";
  return fmt::format("{} failed with {} ({}){}", call, text, static_cast<int>(result), advice);
}

std::uint64_t steady_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

/// Steady clock minus CUPTI's clock, from the closest of several pairs of readings.
Nanoseconds clock_offset() {
  Nanoseconds offset{}, closest = Nanoseconds::max();
  for (int pair = 0; pair < 5; ++pair) {
    std::uint64_t theirs = 0;
    const auto before = static_cast<std::int64_t>(steady_now());
    if (cupti().timestamp(&theirs) != CUPTI_SUCCESS) return {};
    const auto after = static_cast<std::int64_t>(steady_now());
    if (Nanoseconds(after - before) >= closest) continue;
    closest = Nanoseconds(after - before);
    offset = Nanoseconds(before + (after - before) / 2 - static_cast<std::int64_t>(theirs));
  }
  return offset;
}

/// Buffers that CUPTI has filled, on any thread. CUPTI's callbacks take no pointer to user data, so
/// this object is global.
class Filled {
 public:
  struct Block {
    std::unique_ptr<std::uint8_t, decltype(&std::free)> bytes;
    std::size_t size = 0;
  };
  static Filled& all() {
    static Filled filled;
    return filled;
  }
  void add(Block block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  std::vector<Block> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(blocks_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Block> blocks_;  // under mutex_
};

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;  // 0: no limit but the buffer's size
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t filled) {
  Filled::all().add({{buffer, std::free}, filled});
}

/// The activity that is enabled, and the offset that converts its times to the steady clock.
struct Session {
  std::vector<CUpti_ActivityKind> kinds;
  Nanoseconds to_steady{};

  void disable() {
    for (const CUpti_ActivityKind kind : std::exchange(kinds, {})) cupti().disable(kind);
  }
};

Session& session() {
  static Session only;
  return only;
}

std::string enable(std::span<const CUpti_ActivityKind> kinds) {
  CUptiResult result = cupti().register_clock(steady_now);
  if (result != CUPTI_SUCCESS) return failure("cuptiActivityRegisterTimestampCallback", result);
  result = cupti().register_buffers(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS) return failure("cuptiActivityRegisterCallbacks", result);
  for (const CUpti_ActivityKind kind : kinds) {
    result = cupti().enable(kind);
    if (result != CUPTI_SUCCESS) {
      session().disable();
      return failure("cuptiActivityEnable", result);
    }
    session().kinds.push_back(kind);
  }
  session().to_steady = clock_offset();
  return {};
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

std::string start_activity(ActivityDetail detail) {
  if (!cupti().missing.empty()) return cupti().missing;
  if (detail == ActivityDetail::operations) return enable(kOperations);
  return enable(kPrograms);
}

std::vector<ActivityRecord> finish_activity() {
  std::vector<ActivityRecord> records;
  if (session().kinds.empty()) return records;
  session().disable();
  cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const Filled::Block& block : Filled::all().take()) {
    CUpti_Activity* record = nullptr;
    while (cupti().next(block.bytes.get(), block.size, &record) == CUPTI_SUCCESS) {
      ActivityRecord ours;
      if (to_activity(*record, session().to_steady, ours)) records.push_back(std::move(ours));
    }
  }
  return records;
}

}  // namespace penstock::gpu

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/fake/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "dataflow/options.h"
#include "tests/support/gpu/fake/control.h"

namespace penstock::gpu::fake {
namespace {

StreamHandle host(cudaStream_t stream) { return reinterpret_cast<StreamHandle>(stream); }

/// True for errors that CUDA repeats until the process ends.
bool stays(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure ||
         status == cudaErrorECCUncorrectable || status == cudaErrorUnknown;
}

template <typename Number>
Number number_in(std::string_view text) {
  if (const auto number = parse_number<Number>(text)) return *number;
  throw std::invalid_argument(fmt::format("PENSTOCK_FAKE_CUDA: '{}' is no number", text));
}

Timing timing_in(std::string_view text) {
  if (text == "late") return Timing::late;
  if (text == "at_once") return Timing::at_once;
  if (text == "shuffled") return Timing::shuffled;
  throw std::invalid_argument(fmt::format("PENSTOCK_FAKE_CUDA: no timing is '{}'", text));
}

Settings::Failure failure_in(std::string_view text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  if (second == text.npos) {
    throw std::invalid_argument(fmt::format("PENSTOCK_FAKE_CUDA: '{}' is no CALL:N:CODE", text));
  }
  return {std::string(text.substr(0, first)),
          number_in<int>(text.substr(first + 1, second - first - 1)),
          number_in<int>(text.substr(second + 1))};
}

std::unique_ptr<Machine>& machine_place() {
  static auto* const place = new std::unique_ptr<Machine>;  // libraries still call it at exit
  return *place;
}

}  // namespace

Settings parse_settings(std::string_view text) {
  Settings settings;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == item.npos ? "" : item.substr(equals + 1);
    if (key == "devices") {
      settings.devices = number_in<std::int32_t>(value);
    } else if (key == "capability") {
      settings.capability = number_in<std::int32_t>(value);
    } else if (key == "memory_mib") {
      settings.memory_bytes = number_in<std::size_t>(value) << 20;
    } else if (key == "driver") {
      settings.driver = number_in<std::int32_t>(value);
    } else if (key == "timing") {
      settings.timing = timing_in(value);
    } else if (key == "seed") {
      settings.seed = number_in<std::uint64_t>(value);
    } else if (key == "dnn") {
      settings.dnn_version = number_in<std::size_t>(value);
    } else if (key == "refuse") {
      settings.refused_engine = number_in<std::int64_t>(value);
    } else if (key == "break") {
      settings.broken_engine = number_in<std::int64_t>(value);
    } else if (key == "fail") {
      settings.failures.push_back(failure_in(value));
    } else {
      throw std::invalid_argument(fmt::format("PENSTOCK_FAKE_CUDA: no setting is '{}'", item));
    }
  }
  return settings;
}

Machine& machine() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (machine_place() != nullptr) return;
    const char* const settings = std::getenv("PENSTOCK_FAKE_CUDA");
    machine_place() = std::make_unique<Machine>(parse_settings(settings ? settings : ""));
  });
  return *machine_place();
}

int& current_device() {
  thread_local int device = 0;
  return device;
}
cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

void say(const std::string& text) { fmt::print(stderr, "fake CUDA: {}\n", text); }

Machine::Machine(Settings given)
    : settings(std::move(given)),
      streams(
          settings.timing, settings.seed, [](std::size_t bytes) { return Nanoseconds(bytes + 1); },
          Nanoseconds(0), memory, order),
      used(static_cast<std::size_t>(settings.devices)) {}

int Machine::enter(const char* name) {
  const int count = ++calls_[name];
  for (const Settings::Failure& failure : settings.failures) {
    if (failure.call == name && failure.nth == count) return failure.code;
  }
  return 0;
}

int Machine::planned(const char* name) {
  const std::lock_guard lock(mutex_);
  return enter(name);
}

int Machine::calls(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

int Machine::races() {
  const std::lock_guard lock(mutex_);
  streams.run_all();
  for (const std::string& race : order.races()) say(race);
  return static_cast<int>(order.races().size());
}

cudaError_t Machine::remember(cudaError_t status) {
  if (stays(status)) broken_ = status;
  if (status != cudaSuccess) last_error() = status;
  return status;
}

/// True if work that ran has failed. CUDA reports that at a later call.
bool Machine::work_failed() {
  try {
    streams.rethrow_failure();
    return false;
  } catch (const std::exception& failure) {
    if (broken_ == cudaSuccess) say(failure.what());
    return true;
  }
}

cudaError_t Machine::guarded(const char* name, During during,
                             const std::function<cudaError_t()>& work) {
  const int planned = enter(name);
  if (broken_ != cudaSuccess) return broken_;
  if (planned != 0) return static_cast<cudaError_t>(planned);
  if (settings.driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
  if (settings.devices == 0) return cudaErrorNoDevice;
  if (during == During::outside_recordings) {
    if (const cudaError_t status = forbid_in_capture(); status != cudaSuccess) {
      say(fmt::format("{} is not allowed in a recording", name));
      return status;
    }
  }
  try {
    const cudaError_t status = work();
    return work_failed() ? cudaErrorIllegalAddress : status;
  } catch (const std::exception& error) {
    if (work_failed()) return cudaErrorIllegalAddress;
    say(fmt::format("{}: {}", name, error.what()));
    const cudaError_t status = forbid_in_capture();
    return status == cudaSuccess ? cudaErrorInvalidValue : status;
  }
}

cudaError_t Machine::forbid_in_capture() {
  cudaError_t status = cudaSuccess;
  for (auto& [stream, capture] : captures_) {
    if (capture.thread != std::this_thread::get_id()) continue;
    capture.valid = false;
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t Machine::usable(cudaStream_t stream) const {
  const auto device = owner.find(stream);
  if (device == owner.end() || device->second != current_device()) {
    return cudaErrorInvalidResourceHandle;
  }
  const auto capture = captures_.find(stream);
  if (capture == captures_.end() || capture->second.valid) return cudaSuccess;
  return cudaErrorStreamCaptureInvalidated;
}

cudaError_t Machine::enqueue(cudaStream_t stream, HostOperation operation) {
  if (const cudaError_t status = usable(stream); status != cudaSuccess) return status;
  streams.enqueue(host(stream), std::move(operation));
  return cudaSuccess;
}

cudaError_t Machine::begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t status = usable(stream); status != cudaSuccess) return status;
  if (captures_.contains(stream)) return cudaErrorIllegalState;
  // A global recording also restricts other threads, which this machine does not check.
  if (mode != cudaStreamCaptureModeThreadLocal) return cudaErrorNotSupported;
  streams.begin_capture(host(stream));
  captures_[stream] = {.thread = std::this_thread::get_id()};
  return cudaSuccess;
}

cudaError_t Machine::end_capture(cudaStream_t stream, GraphHandle& graph) {
  graph = nullptr;
  const auto capture = captures_.find(stream);
  if (capture == captures_.end()) return cudaErrorIllegalState;
  if (capture->second.thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool valid = capture->second.valid;
  captures_.erase(capture);
  if (!valid) {
    streams.abandon_capture(host(stream));
    return cudaErrorStreamCaptureInvalidated;
  }
  graph = streams.end_capture(host(stream));
  return cudaSuccess;
}

}  // namespace penstock::gpu::fake

using penstock::gpu::fake::machine;

void fake_cuda_restart(const char* settings) {
  namespace fake = penstock::gpu::fake;
  machine();  // makes it now from the environment, not later
  fake::machine_place() = std::make_unique<fake::Machine>(fake::parse_settings(settings));
  fake::last_error() = cudaSuccess;
  fake::current_device() = 0;
}
int fake_cuda_calls(const char* function) { return machine().calls(function); }
int fake_cuda_races() { return machine().races(); }

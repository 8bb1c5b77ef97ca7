// SPDX-License-Identifier: Apache-2.0
// The machine behind the fake libcudart.so.13 and libcudnn.so.9. Its GPUs are emulated with the
// host's memory and streams (../host_streams.h). It verifies in which order CUDA is called and how
// errors are handled, not what CUDA computes.
//
// It is at least as strict as CUDA. During a recording, the recording thread may use no other
// stream. A call that is forbidden in a recording invalidates the recording. Errors remain for
// cudaGetLastError(), including cudaErrorNotReady. After an illegal access all calls fail.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/gpu/happens_before.h"
#include "tests/support/gpu/host_memory.h"
#include "tests/support/gpu/host_streams.h"

namespace penstock::gpu::fake {

struct Settings {
  std::int32_t devices = 1, capability = 90, driver = CUDART_VERSION;
  std::size_t memory_bytes = std::size_t{1} << 30;
  Timing timing = Timing::late;
  std::uint64_t seed = 1;
  std::size_t dnn_version = 91900;
  std::int64_t refused_engine = -1, broken_engine = -1;
  struct Failure {
    std::string call;
    int nth = 0, code = 0;
  };
  std::vector<Failure> failures;
};
/// Parses settings as control.h describes them. Throws std::invalid_argument.
Settings parse_settings(std::string_view text);

/// Whether a call is allowed while its thread records a stream.
enum class During { any, outside_recordings };

class Machine {
 public:
  explicit Machine(Settings given);

  /// Runs `work`, which returns a cudaError_t, under the machine's lock. Turns exceptions of it and
  /// of enqueued work into a code. Sets the thread's last error.
  template <typename Work>
  cudaError_t call(const char* name, During during, const Work& work) {
    const std::lock_guard lock(mutex_);
    return remember(guarded(name, during, work));
  }
  /// Counts a call. Returns the code of a failure that is planned for it, or 0.
  int planned(const char* name);
  int calls(std::string_view name);
  int races();

  // Use the members below only within call().
  const Settings settings;
  HappensBefore order;
  HostMemory memory{order};
  HostStreams streams;
  std::map<std::byte*, int> device_of_block;  ///< GPU by block of device memory
  std::map<const void*, int> owner;           ///< GPU by stream, event or graph
  std::vector<std::size_t> used;              ///< bytes in use on each GPU
  std::set<std::pair<int, int>> peers;        ///< the first may access the memory of the second

  /// Enqueues on a stream of the current GPU. A recording of that stream must still be valid.
  cudaError_t enqueue(cudaStream_t stream, HostOperation operation);
  /// cudaSuccess if this thread may enqueue work on the stream.
  cudaError_t usable(cudaStream_t stream) const;
  bool records(cudaStream_t stream) const { return captures_.contains(stream); }
  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(cudaStream_t stream, GraphHandle& graph);
  /// For a call that invalidates the thread's recordings: returns cudaErrorStreamCaptureUnsupported
  /// if there are any.
  cudaError_t forbid_in_capture();

 private:
  struct Capture {
    std::thread::id thread;
    bool valid = true;
  };
  cudaError_t guarded(const char* name, During during, const std::function<cudaError_t()>& work);
  cudaError_t remember(cudaError_t status);
  bool work_failed();
  int enter(const char* name);

  std::mutex mutex_;
  cudaError_t broken_ = cudaSuccess;  ///< the result of every call after a permanent error
  std::map<cudaStream_t, Capture> captures_;
  std::map<std::string, int, std::less<>> calls_;
};

/// The machine of the process. The first call makes it from PENSTOCK_FAKE_CUDA.
Machine& machine();
/// The current device of the calling thread.
int& current_device();
cudaError_t& last_error();
/// Prints to standard error.
void say(const std::string& text);

}  // namespace penstock::gpu::fake

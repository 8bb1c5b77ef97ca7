// SPDX-License-Identifier: Apache-2.0
// The machine behind the fake libcudart.so.13 and libcudnn.so.9: GPUs played by the host's memory
// and streams (../host_streams.h). It proves in which order CUDA is called and what becomes of its
// errors, not what CUDA does.
//
// It is at least as strict as CUDA: during a recording the recording thread may use no other
// stream; a call that a recording forbids invalidates it; errors stay for cudaGetLastError(),
// cudaErrorNotReady among them; after an illegal access all calls fail.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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
/// As control.h describes. Throws std::invalid_argument.
Settings parse_settings(std::string_view text);

/// Whether a call is allowed while its thread records a stream.
enum class During { any, outside_recordings };

class Machine {
 public:
  explicit Machine(Settings given);

  /// Runs `work`, which returns a cudaError_t, under the machine's lock. What it throws, and what
  /// enqueued work threw, becomes a code. The thread's last error is set.
  template <typename Work>
  cudaError_t call(const char* name, During during, const Work& work) {
    const std::lock_guard lock(mutex_);
    return remember(guarded(name, during, work));
  }
  /// Counts a call; the code of a failure that is planned for it, or 0.
  int planned(const char* name);
  int calls(std::string_view name);
  int races();

  // The rest is for work within call().
  const Settings settings;
  HostMemory memory;
  HappensBefore order;
  HostStreams streams;
  std::map<std::byte*, int> device_of_block;  ///< of device memory
  std::map<const void*, int> owner;           ///< GPU of a stream, an event or a graph
  std::vector<std::size_t> used;              ///< bytes of each GPU
  std::set<std::pair<int, int>> peers;        ///< who may touch whose memory

  /// Enqueues on a stream of the current GPU, whose recording is still valid.
  cudaError_t enqueue(cudaStream_t stream, HostOperation operation);
  /// cudaSuccess if work may be enqueued on it by this thread.
  cudaError_t usable(cudaStream_t stream) const;
  bool records(cudaStream_t stream) const { return captures_.contains(stream); }
  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(cudaStream_t stream, GraphHandle& graph);
  /// For a call that the thread's recordings do not survive: cudaErrorStreamCaptureUnsupported if
  /// there are any.
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
  cudaError_t broken_ = cudaSuccess;  ///< what every call returns from then on
  std::map<cudaStream_t, Capture> captures_;
  std::map<std::string, int, std::less<>> calls_;
};

/// The one of the process, made from PENSTOCK_FAKE_CUDA when it is asked for first.
Machine& machine();
/// Of the calling thread.
int& current_device();
cudaError_t& last_error();
/// To standard error.
void say(const std::string& text);

}  // namespace penstock::gpu::fake

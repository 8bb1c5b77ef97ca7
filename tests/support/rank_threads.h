// SPDX-License-Identifier: Apache-2.0
// Runs one function per rank, each on a separate thread, and rethrows the first failure.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

inline void run_ranks(std::int32_t ranks, const std::function<void(std::int32_t)>& body) {
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (failure == nullptr) failure = std::current_exception();
        }
      });
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Runs one function per rank, each on a separate thread, and rethrows the first failure. With a
// clock, all threads take part in it before one of them runs.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

inline void run_ranks(std::int32_t ranks, const std::function<void(std::int32_t)>& body,
                      Clock* clock = nullptr) {
  std::vector<std::optional<Clock::Participant>> participants(static_cast<std::size_t>(ranks));
  for (auto& each : participants) {
    if (clock != nullptr) each.emplace(*clock);
  }
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      auto& own = participants[static_cast<std::size_t>(rank)];
      threads.emplace_back([&, rank, participant = std::move(own)] {
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

// SPDX-License-Identifier: Apache-2.0
// The processes of a run as threads of a test, which exchange their texts in memory.
#pragma once

#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/cluster/processes.h"

namespace penstock {

/// A process that knows which one it is. It exchanges no gradients and must not be aborted.
class PlayedProcess : public cluster::Processes {
 public:
  explicit PlayedProcess(cluster::Launch launch) : launch_(std::move(launch)) {}
  const cluster::Launch& launch() const noexcept override { return launch_; }
  std::vector<std::string> all_gather(std::string_view, Nanoseconds, std::string_view) override {
    return {};
  }
  std::unique_ptr<CollectiveGroup> make_group(const Exchange&) override { return nullptr; }
  void abort(int) override { std::abort(); }
  void exit_stopped(int) override { std::abort(); }

 private:
  const cluster::Launch launch_;
};

class ProcessesInMemory {
 public:
  explicit ProcessesInMemory(std::int32_t size)
      : texts_(static_cast<std::size_t>(size)), meeting_(size) {}

  /// Calls `process` once for each process, in a thread each, and returns when all have ended.
  void run(const std::function<void(cluster::Processes&)>& process) {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(texts_.size()); ++rank) {
      threads.emplace_back([this, rank, &process] {
        Member member(*this, rank);
        process(member);
      });
    }
  }

 private:
  class Member final : public PlayedProcess {
   public:
    Member(ProcessesInMemory& all, std::int32_t rank)
        : PlayedProcess({.launcher = "mpirun",
                         .rank = rank,
                         .size = static_cast<std::int32_t>(all.texts_.size())}),
          all_(all) {}
    std::vector<std::string> all_gather(std::string_view text, Nanoseconds,
                                        std::string_view) override {
      all_.texts_[static_cast<std::size_t>(launch().rank)] = text;
      all_.meeting_.arrive_and_wait();
      std::vector<std::string> texts = all_.texts_;
      all_.meeting_.arrive_and_wait();
      return texts;
    }

   private:
    ProcessesInMemory& all_;
  };

  std::vector<std::string> texts_;
  std::barrier<> meeting_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Emulates processes by threads of the test. They share texts, but exchange no gradients.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "trainer/cluster/processes.h"

namespace penstock {

/// The state that all of them share.
class TextBoard {
 public:
  explicit TextBoard(std::int32_t size) : size_(static_cast<std::size_t>(size)) {}
  std::vector<std::string> gather(std::size_t round, std::int32_t rank, std::string_view text) {
    std::unique_lock lock(mutex_);
    auto& texts = rounds_[round];
    texts[rank] = text;
    changed_.notify_all();
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return texts.size() == size_; })) {
      throw TimeoutError("not all ranks came");
    }
    std::vector<std::string> all;
    for (const auto& [of, one] : texts) all.push_back(one);
    return all;
  }

 private:
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, std::map<std::int32_t, std::string>> rounds_;
};

class ThreadProcesses final : public cluster::Processes {
 public:
  ThreadProcesses(TextBoard& board, std::int32_t rank, std::int32_t size)
      : board_(board), launch_{.launcher = "the test", .rank = rank, .size = size} {}
  const cluster::Launch& launch() const noexcept override { return launch_; }
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds,
                                      std::string_view) override {
    return texts_.emplace_back(board_.gather(texts_.size(), launch_.rank, text));
  }
  std::unique_ptr<CollectiveGroup> make_group(const Exchange&) override { return nullptr; }
  void abort(int) override { std::abort(); }
  void exit_stopped(int) override { std::abort(); }
  /// All texts of each call, in order.
  const std::vector<std::vector<std::string>>& texts() const { return texts_; }

 private:
  TextBoard& board_;
  const cluster::Launch launch_;
  std::vector<std::vector<std::string>> texts_;
};

}  // namespace penstock

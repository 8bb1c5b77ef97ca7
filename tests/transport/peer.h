// SPDX-License-Identifier: Apache-2.0
// A transport_peer (transport_peer.cpp) in a process of its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/processes/child_process.h"
#include "tests/transport/feed.h"

namespace penstock::transport {

/// transport_peer with the lines that it prints.
class Peer {
 public:
  explicit Peer(std::vector<std::string> words)
      : child_({.arguments = with_program(std::move(words)),
                .timeout = std::chrono::seconds(50),
                .grace = std::chrono::milliseconds(100),
                .on_output = [this](std::string_view text) { take(text); }}) {}

  std::string process() const { return "process " + std::to_string(child_.pid()); }
  void signal(int number) const { ASSERT_EQ(kill(child_.pid(), number), 0); }
  void kill_and_wait() {
    signal(SIGKILL);
    EXPECT_EQ(child_.wait().signal, SIGKILL);
  }
  /// How it ended by itself.
  auto wait() { return child_.wait(); }
  bool await_stop() const {
    return await([this] {
      std::ifstream file("/proc/" + std::to_string(child_.pid()) + "/stat");
      std::string stat;
      std::getline(file, stat);
      return says(stat, ") T ");
    });
  }

  std::size_t lines() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count(output_.begin(), output_.end(), '\n'));
  }
  bool await_lines(std::size_t count) const {
    return await([&] { return lines() >= count; });
  }
  /// The batches that a consumer named.
  std::vector<BatchName> batches() const {
    const std::lock_guard lock(mutex_);
    std::istringstream text(output_.substr(0, output_.rfind('\n') + 1));
    std::vector<BatchName> names;
    for (BatchName name; text >> name.producer >> name.batch;) names.push_back(name);
    return names;
  }

 private:
  static std::vector<std::string> with_program(std::vector<std::string> words) {
    words.insert(words.begin(), PENSTOCK_TRANSPORT_PEER);
    return words;
  }
  void take(std::string_view text) {
    const std::lock_guard lock(mutex_);
    output_ += text;
  }

  mutable std::mutex mutex_;
  std::string output_;
  ChildProcess child_;
};

}  // namespace penstock::transport

// SPDX-License-Identifier: Apache-2.0
// A run of servers and workers as a user starts them: real processes over TCP.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/words.h"

namespace penstock {

using namespace std::chrono_literals;

/// A run with this many servers and workers, each a child process.
class ParameterServerProgram : public ::testing::Test {
 protected:
  void name_tasks(int servers, int workers) {
    ps_hosts_.clear();
    worker_hosts_.clear();
    ports_ = std::vector<ReservedPort>(static_cast<std::size_t>(servers));
    for (const ReservedPort& port : ports_) add(ps_hosts_, port.number());
    for (int i = 0; i < workers; ++i) add(worker_hosts_, static_cast<std::uint16_t>(i + 1));
  }
  static void add(std::string& hosts, std::uint16_t port) {
    if (!hosts.empty()) hosts += ',';
    hosts += address(port);
  }
  static std::string address(std::uint16_t port) {
    return std::string("127.0.0.1:").append(std::to_string(port));
  }
  Words command(const std::string& job, int task) const {
    return {PENSTOCK_PROGRAM,          "run",
            "--job_name=" + job,       std::string("--task_index=").append(std::to_string(task)),
            "--ps_hosts=" + ps_hosts_, "--worker_hosts=" + worker_hosts_,
            "--timeout=" + timeout_,   "--rendezvous-timeout=20s"};
  }
  ChildCommand child(const std::string& job, int task, const Words& more) const {
    Words words = command(job, task);
    if (job == "worker") {
      words = joined(words, {"--fake-location=gpu", "--model=trivial", "--batch-size=4",
                             "--num-warmup-batches=2"});
    }
    return {.arguments = joined(words, more), .timeout = 50s};
  }
  ChildProcess& start(ChildCommand command) {
    children_.push_back(std::make_unique<ChildProcess>(std::move(command)));
    return *children_.back();
  }
  ChildProcess& start(const std::string& job, int task, const Words& more = {}) {
    return start(child(job, task, more));
  }
  /// Waits until a server of this test listens on the port.
  static bool await_server(const ReservedPort& port) {
    const std::string listens = fmt::format(" 0100007F:{:04X} 00000000:0000 0A ", port.number());
    return await([&] { return read_text("/proc/net/tcp").find(listens) != std::string::npos; });
  }
  std::filesystem::path out() const { return folder_.path() / "out.json"; }
  nlohmann::json result() const { return nlohmann::json::parse(read_text(out()), nullptr, false); }
  TempFolder folder_;
  std::string timeout_ = "20s", ps_hosts_, worker_hosts_;
  std::vector<ReservedPort> ports_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

}  // namespace penstock

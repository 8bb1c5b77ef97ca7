// SPDX-License-Identifier: Apache-2.0
// Trains a very small model for long under each kind of update, in this process or in the processes
// that mpirun starts. Exits with 0 if neither resident memory nor open files grow, from a quarter
// of the steps to their end and from one run to the next.
//
//   update_soak [STEPS [DEVICES OF EACH PROCESS [UPDATE...]]]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/run/runner.h"
#include "trainer/cluster/processes.h"

namespace penstock {
namespace {

/// The allowance for allocators, page caches and messages in flight, in all steps together.
constexpr std::int64_t kMostGrowth = 1 << 20;

struct Held {
  std::int64_t resident_bytes = 0, files = 0;
};

Held held_now() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  // Other threads open files for a moment.
  std::int64_t files = std::numeric_limits<std::int64_t>::max();
  for (int look = 0; look < 5; ++look) {
    const auto open = std::filesystem::directory_iterator("/proc/self/fd");
    files = std::min<std::int64_t>(files, std::distance(begin(open), end(open)));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {resident * sysconf(_SC_PAGESIZE), files};
}

class Watch final : public RunListener {
 public:
  explicit Watch(std::int64_t steps) : steps_(static_cast<std::size_t>(steps)) {}
  void step(const StepReport& report) override {
    if (report.index == steps_ / 4) early_ = held_now();
    if (report.index + 1 == steps_) late_ = held_now();
  }
  /// None if all is well.
  std::optional<std::string> complaint() const {
    if (!late_) return "the last step was never reported";
    const std::int64_t grown = late_->resident_bytes - early_.resident_bytes;
    if (grown > kMostGrowth) return fmt::format("resident memory grew by {} bytes", grown);
    const std::int64_t opened = late_->files - early_.files;
    if (opened > 0) return fmt::format("{} files were opened and not closed", opened);
    return std::nullopt;
  }
  std::int64_t growth() const { return late_ ? late_->resident_bytes - early_.resident_bytes : 0; }

 private:
  const std::size_t steps_;
  Held early_;
  std::optional<Held> late_;
};

class Soak {
 public:
  Soak(cluster::Processes* processes, Clock& clock, std::int64_t steps, std::int32_t devices)
      : processes_(processes), clock_(clock), steps_(steps), devices_(devices) {}

  void run(const std::string& update) {
    const Held before = held_now();
    train(update);
    const std::int64_t left = held_now().files - before.files;
    if (left > 0 && trained_ > 0) {  // the first run opens files that the program keeps open
      complain(update, fmt::format("{} files stayed open behind the run", left));
    }
    ++trained_;
  }
  bool failed() const noexcept { return failed_; }

 private:
  void train(const std::string& update) {
    RunConfig config;
    config.variable_update = update;
    config.fake_location = "gpu";
    config.device = "cpu";
    config.model = "trivial_cifar10";
    config.image_size = 8;
    config.batch_size = 1;
    config.num_warmup_batches = 20;
    config.num_batches = steps_;
    config.num_gpus = devices_;
    config.compute_threads = 1;
    config.timeout = 600;  // no user waits here, and ranks may drift apart if they do not wait
    Runner::Components components = find_components(config);
    components.processes = processes_;
    Runner runner(config, clock_, components);
    Watch watch(steps_);
    const RunResult result = runner.run(watch, {});
    if (result.status != Status::ok) return complain(update, result.reason);
    if (const auto complaint = watch.complaint()) complain(update, *complaint);
    if (processes_ != nullptr) {  // others may still read this process's model
      processes_->all_gather("", std::chrono::minutes(5), "ending a run");
    }
    if (processes_ == nullptr || processes_->launch().rank == 0) {
      fmt::print("{}: {} steps, {:+} bytes\n", update, steps_, watch.growth());
    }
  }
  void complain(const std::string& update, const std::string& text) {
    fmt::print(stderr, "{}{}: {}\n",
               processes_ == nullptr ? "" : fmt::format("rank {}: ", processes_->launch().rank),
               update, text);
    failed_ = true;
  }

  cluster::Processes* const processes_;
  Clock& clock_;
  const std::int64_t steps_;
  const std::int32_t devices_;
  int trained_ = 0;
  bool failed_ = false;
};

int run(const std::vector<std::string>& words) {
  const std::optional<cluster::Launch> launch =
      cluster::read_launch([](const char* name) { return std::getenv(name); });
  const std::int64_t steps = words.empty() ? 2000 : std::stoll(words[0]);
  const std::int32_t devices = words.size() < 2 ? 1 : std::stoi(words[1]);
  std::vector<std::string> updates(words.begin() + std::min<std::ptrdiff_t>(2, std::ssize(words)),
                                   words.end());
  if (updates.empty()) {
    updates = {"replicated",  "replicated:consistency=relaxed",
               "sma",         "parameter_server:placement=greedy",
               "async-sgd",   "parameter_server:staged=true",
               "independent", "async-sgd:prefetch=true"};
  }
  SteadyClock clock;
  std::unique_ptr<cluster::Processes> processes;
  if (launch && launch->size > 1) processes = cluster::join_processes(*launch, clock);
  Soak soak(processes.get(), clock, steps, devices);
  for (const std::string& update : updates) soak.run(update);
  if (soak.failed() && processes) processes->abort(1);
  return soak.failed() ? 1 : 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    return penstock::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}

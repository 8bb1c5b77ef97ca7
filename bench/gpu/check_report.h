// SPDX-License-Identifier: Apache-2.0
// The results of a verb of penstock_gpu_check: one line per check, and a JSON file with all checks,
// which is updated while the program runs. The report also decides which checks run: it filters by
// name, stops at the time limit, and skips checks that an earlier call's JSON holds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::gpu {

struct CheckSettings {
  std::string driver = "gpu";        ///< gpu or host
  std::string only{};                ///< comma-separated: run checks whose names contain one
  double seconds = 0;                ///< no check begins after this time; 0: no limit
  std::size_t engines = 10;          ///< number of the DNN library's engines to try for each graph
  std::uint64_t seed = 1;            ///< of all random data
  std::filesystem::path expected{};  ///< verb device: the description to compare with; may be empty
  std::filesystem::path json{};      ///< file for the results; empty: none
  bool resume = false;               ///< keep the checks that `json` holds, and run the others
};

enum class Verdict : std::uint8_t { pass, fail, skip, note };

/// May be used from any thread.
class CheckReport {
 public:
  CheckReport(const CheckSettings& settings, std::string_view verb);

  /// True if the check of this name must run. False if an earlier call ran it, or after the time
  /// limit, which finish() then reports.
  bool wants(std::string_view name);
  /// Prints the line. Writes the JSON if the last write is more than a second ago. The names of
  /// `figures` include their unit.
  void add(std::string_view name, Verdict verdict, const std::map<std::string, double>& figures,
           std::string_view text = {});
  /// Prints the count of each verdict and writes the JSON. Returns the exit code: 1 if a check
  /// failed, else 0.
  int finish();

 private:
  struct Line {
    std::string name;
    Verdict verdict;
    std::map<std::string, double> figures;
    std::string text;
  };
  bool is_asked_for(std::string_view name) const;
  void read_json();
  void write_json();
  std::size_t count(Verdict verdict) const;
  double seconds() const;

  const CheckSettings settings_;
  const std::string verb_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  std::set<std::string, std::less<>> earlier_;  // names of the checks that an earlier call ran
  std::size_t left_out_ = 0;                    // checks not run because of the time limit
  double written_at_ = -1;                      // seconds()
};

// The verbs of penstock_gpu_check: each runs its checks and adds them to the report. They throw
// Unavailable if the machine lacks something that they need.

/// Reports the device's properties, and how they differ from the description in settings.expected.
void check_device(const CheckSettings& settings, CheckReport& report);
/// Measures the rates of copies and matrix products, in GB/s and TFLOP/s.
void check_ceilings(const CheckSettings& settings, CheckReport& report);
/// Checks every Penstock kernel at a network's shapes and at awkward ones.
void check_kernels(const CheckSettings& settings, CheckReport& report);
/// Checks the convolutions and linear layers of networks, forward and backward, in every precision.
void check_convolutions(const CheckSettings& settings, CheckReport& report);
/// Checks convolutions fused with the batch norms around them.
void check_patterns(const CheckSettings& settings, CheckReport& report);
/// Checks the whole backend on small graphs of every operator.
void check_small_graphs(const CheckSettings& settings, CheckReport& report);

}  // namespace penstock::gpu

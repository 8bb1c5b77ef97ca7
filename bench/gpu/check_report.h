// SPDX-License-Identifier: Apache-2.0
// What a verb of penstock_gpu_check found: one line a check, and all of them as JSON, which is
// written while checks are made. It also decides which checks are made: by name, until the time is
// up, and without those that the JSON of an earlier call holds.
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
  std::string only{};                ///< checks whose names contain one of these, between commas
  double seconds = 0;                ///< after which no check begins; 0: no limit
  std::size_t engines = 10;          ///< of the DNN library, tried for each of its graphs
  std::uint64_t seed = 1;            ///< of all that is random
  std::filesystem::path expected{};  ///< verb device: a description to compare with; may be empty
  std::filesystem::path json{};      ///< where the results go; empty: nowhere
  bool resume = false;               ///< keep the checks that `json` holds, and make the others
};

enum class Verdict : std::uint8_t { pass, fail, skip, note };

/// May be used from any thread.
class CheckReport {
 public:
  CheckReport(const CheckSettings& settings, std::string_view verb);

  /// Whether a check of this name is to be made. False if an earlier call made it, and once the
  /// time is up, which finish() then says.
  bool wants(std::string_view name);
  /// Prints the line, and writes the JSON if it is older than a second. `figures` have their unit
  /// in the name.
  void add(std::string_view name, Verdict verdict, const std::map<std::string, double>& figures,
           std::string_view text = {});
  /// Prints the count of each verdict, and writes the JSON. Returns the exit code: 1 where a check
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
  std::set<std::string, std::less<>> earlier_;  // names of lines that an earlier call made
  std::size_t left_out_ = 0;                    // for want of time
  double written_at_ = -1;                      // seconds()
};

}  // namespace penstock::gpu

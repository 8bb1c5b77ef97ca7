// SPDX-License-Identifier: Apache-2.0
// What a verb of penstock_gpu_check found: one line a check, and all of them as JSON. Which checks
// are made is decided here, too: by name, and until the time is up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
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
};

enum class Verdict : std::uint8_t { pass, fail, skip, note };

/// May be used from any thread.
class CheckReport {
 public:
  explicit CheckReport(const CheckSettings& settings);

  /// Whether a check of this name is to be made. False once the time is up, which is then said.
  bool wants(std::string_view name);
  /// Prints the line. `figures` have their unit in the name.
  void add(std::string_view name, Verdict verdict, const std::map<std::string, double>& figures,
           std::string_view text = {});
  /// Prints the count of each verdict, and writes the JSON. Returns the exit code: 1 where a check
  /// failed, else 0.
  int finish(std::string_view verb);

 private:
  struct Line {
    std::string name;
    Verdict verdict;
    std::map<std::string, double> figures;
    std::string text;
  };
  bool is_asked_for(std::string_view name) const;
  void write_json(std::string_view verb) const;
  std::size_t count(Verdict verdict) const;
  double seconds() const;

  const CheckSettings settings_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  std::size_t left_out_ = 0;  // for want of time
};

}  // namespace penstock::gpu

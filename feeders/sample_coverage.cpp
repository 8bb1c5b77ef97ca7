// SPDX-License-Identifier: Apache-2.0
#include "feeders/sample_coverage.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <string_view>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::filesystem::path path_of(std::filesystem::path path, const DataPlan& plan) {
  if (plan.ranks > 1) path += fmt::format(".{}", plan.rank);
  return path;
}

std::string digits_of(const std::vector<bool>& seen) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (std::size_t i = 0; i < seen.size(); i += 4) {
    std::size_t value = 0;
    for (std::size_t bit = 0; bit < 4 && i + bit < seen.size(); ++bit) {
      value += static_cast<std::size_t>(seen[i + bit]) << bit;
    }
    digits += kDigits[value];
  }
  return digits;
}

}  // namespace

SampleCoverage::SampleCoverage(const std::filesystem::path& path, const DataPlan& plan,
                               const SourceFacts& facts)
    : file_(path_of(path, plan), "queue:coverage names a file in an existing, writable folder"),
      samples_(facts.size_over_ranks),
      share_(facts.size),
      rank_(plan.rank),
      ranks_(plan.ranks) {}

void SampleCoverage::saw(std::uint64_t epoch, std::uint64_t index) {
  PENSTOCK_ASSERT(index < samples_);
  const std::lock_guard lock(mutex_);
  Epoch& of = epochs_[epoch];
  of.seen.resize(samples_);
  of.twice += of.seen[index] ? 1 : 0;
  of.seen[index] = true;
}

void SampleCoverage::write() {
  const std::lock_guard lock(mutex_);
  std::ostringstream text;
  text << "{\"schema\":1,\"samples\":" << samples_ << ",\"rank\":" << rank_
       << ",\"ranks\":" << ranks_ << ",\"share\":" << share_ << ",\"epochs\":[";
  const char* separator = "\n";
  for (const auto& [number, epoch] : epochs_) {
    text << separator << "{\"epoch\":" << number << ",\"twice\":" << epoch.twice << ",\"seen\":\""
         << digits_of(epoch.seen) << "\"}";
    separator = ",\n";
  }
  text << "]}\n";
  file_.write(text.view());
  file_.commit();
}

}  // namespace penstock

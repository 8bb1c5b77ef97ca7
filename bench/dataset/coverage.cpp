// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/record/json_field.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::dataset {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 32, kMostRanks = 65536;

/// What all processes saw in one epoch.
struct Merged {
  std::vector<std::uint8_t> times;  // by sample, at most 2
  std::set<std::int32_t> over;      // ranks that have seen their whole share
  std::uint64_t twice = 0;          // samples that one process saw again
};

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/// Adds what one process saw in an epoch, a digit for each four samples; returns how many samples.
std::uint64_t add_seen(const JsonField& field, std::vector<std::uint8_t>& times) {
  const std::string digits = field.text();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const int value = digit_of(digits[i]);
    if (value < 0) field.refuse("hexadecimal digits");
    for (std::size_t bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) == 0) continue;
      const std::size_t sample = 4 * i + bit;
      if (sample >= times.size()) field.refuse("no bits beyond the last sample");
      times[sample] = static_cast<std::uint8_t>(std::min(2, times[sample] + 1));
      ++count;
    }
  }
  return count;
}

/// "3, 8-17", with at most 8 ranges.
std::string ranges_of(const std::vector<std::uint8_t>& times) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] != 0) continue;
    const std::size_t first = i;
    while (i + 1 < times.size() && times[i + 1] == 0) ++i;
    if (ranges.size() == kMost) {
      ranges.emplace_back("...");
      break;
    }
    ranges.push_back(first == i ? fmt::format("{}", first) : fmt::format("{}-{}", first, i));
  }
  return join(ranges);
}

EpochCoverage summary_of(std::uint64_t epoch, const Merged& merged, std::int32_t ranks) {
  EpochCoverage result{.epoch = epoch};
  for (const std::uint8_t times : merged.times) {
    ++(times == 0 ? result.missing : times == 1 ? result.once : result.more);
  }
  result.more = std::max(result.more, merged.twice);
  // A rank without a file says nothing about what it will still see.
  result.is_over = std::ssize(merged.over) == ranks;
  if (result.missing > 0) result.missing_samples = ranges_of(merged.times);
  return result;
}

nlohmann::ordered_json parsed(const CoverageText& file) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(file.text, nullptr, false);
  if (json.is_object() && json.contains("schema") && json.contains("share")) return json;
  throw DataError("'{}' is not what queue:coverage=FILE writes: it has no 'schema' or no 'share'",
                  file.name);
}

}  // namespace

bool Coverage::is_exact() const {
  return absent.empty() && !epochs.empty() &&
         std::ranges::all_of(epochs, [](const EpochCoverage& epoch) {
           return epoch.more == 0 && (epoch.missing == 0 || !epoch.is_over);
         });
}

Coverage merge_coverage(const std::vector<CoverageText>& files) {
  Coverage coverage;
  std::map<std::uint64_t, Merged> epochs;
  std::set<std::int32_t> present;
  for (const CoverageText& file : files) {
    const nlohmann::ordered_json json = parsed(file);
    const JsonField field(json, file.name);
    if (field.at("schema").integer() != 1) field.at("schema").refuse("1");
    const auto samples = static_cast<std::uint64_t>(field.at("samples").integer(1, kMostSamples));
    const auto ranks = static_cast<std::int32_t>(field.at("ranks").integer(1, kMostRanks));
    if (present.empty()) {
      coverage.samples = samples;
      coverage.ranks = ranks;
    }
    if (samples != coverage.samples) {
      field.at("samples").refuse(fmt::format("{}, as in the first file", coverage.samples));
    }
    if (ranks != coverage.ranks) {
      field.at("ranks").refuse(fmt::format("{}, as in the first file", coverage.ranks));
    }
    const auto rank = static_cast<std::int32_t>(field.at("rank").integer(0, ranks - 1));
    if (!present.insert(rank).second) field.at("rank").refuse("a rank that no other file has");
    const std::uint64_t share = field.at("share").unsigned_integer();
    for (const JsonField& each : field.at("epochs").elements()) {
      const std::uint64_t number = each.at("epoch").unsigned_integer();
      // Digits first: they bound the memory by the size of the file.
      if (each.at("seen").text().size() != (samples + 3) / 4) {
        each.at("seen").refuse(fmt::format("{} hexadecimal digits", (samples + 3) / 4));
      }
      Merged& merged = epochs[number];
      merged.times.resize(samples);
      if (add_seen(each.at("seen"), merged.times) >= share) merged.over.insert(rank);
      merged.twice += each.at("twice").unsigned_integer();
    }
  }
  for (std::int32_t rank = 0; rank < coverage.ranks; ++rank) {
    if (!present.contains(rank)) coverage.absent.push_back(rank);
  }
  for (const auto& [number, merged] : epochs) {
    coverage.epochs.push_back(summary_of(number, merged, coverage.ranks));
  }
  return coverage;
}

Coverage read_coverage(const std::vector<std::filesystem::path>& files) {
  std::vector<CoverageText> texts;
  for (const std::filesystem::path& path : files) {
    try {
      texts.push_back({path.native(), InputFile(path).text()});
    } catch (const DataError& error) {
      throw ConfigError("cannot read '{}': {}; expected a file that queue:coverage=FILE wrote",
                        path.native(), error.what());
    }
  }
  return merge_coverage(texts);
}

std::string to_text(const Coverage& coverage) {
  std::string text =
      fmt::format("{:>7} {:>10} {:>10} {:>10}\n", "epoch", "once", "more", "missing");
  bool unfinished = false;
  for (const EpochCoverage& epoch : coverage.epochs) {
    text +=
        fmt::format("{:>7} {:>10} {:>10} {:>10}{}{}\n", epoch.epoch, epoch.once, epoch.more,
                    epoch.missing, epoch.is_over ? "" : "  not over",
                    epoch.is_over && epoch.missing > 0 ? "  samples " + epoch.missing_samples : "");
    unfinished = unfinished || !epoch.is_over;
  }
  for (const std::int32_t rank : coverage.absent) {
    text += fmt::format("rank {} of {} has no file here\n", rank, coverage.ranks);
  }
  if (coverage.is_exact()) {
    text += fmt::format("each of the {} samples was seen exactly once in each epoch{}\n",
                        coverage.samples, unfinished ? " that is over" : "");
  } else {
    text +=
        fmt::format("not every one of the {} samples was seen exactly once\n", coverage.samples);
  }
  return text;
}

}  // namespace penstock::dataset

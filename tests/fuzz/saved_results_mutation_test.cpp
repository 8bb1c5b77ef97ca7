// SPDX-License-Identifier: Apache-2.0
// Mutations of saved results, from a fixed seed: each is read as results that every report can be
// made of, or refused with a reason.
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report.h"
#include "bench/result_json.h"
#include "bench/saved_results.h"
#include "dataflow/error.h"
#include "tests/bench/sweep_rows.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

std::string good_text() {
  SweepResult sweep;
  sweep.repetitions = 1;
  sweep.rounds = {{0, 1}};
  for (const char* feeder : {"gpu", "cpu"}) {
    Row row = make_row(feeder, std::string_view(feeder) == "gpu");
    RunResult result = make_result(Status::ok, 100, 100);
    result.stages = {{.name = "draw", .workers = "feeder", .images = 10}};
    result.queues = {{.name = "host ring", .slots = 3, .filled = {1, 2}}};
    add_repetition(row, 0, result);
    sweep.rows.push_back(row);
  }
  sweep.varied = {&find_config_key("fake_location")};
  summarise(sweep);
  return to_json(sweep).dump();
}

/// What numbers, names and structure are made of, in place of a character of the same kind, so that
/// much of it stays JSON.
void mutate_text(std::vector<std::byte>& bytes, Random& random) {
  if (bytes.empty()) return;
  std::byte& byte = bytes[random.below(bytes.size())];
  const auto code = std::to_integer<unsigned char>(byte);
  const std::string_view kind = std::isdigit(code) != 0   ? "0123456789-e."
                                : std::isalpha(code) != 0 ? "abcdefstu_"
                                                          : "[]{}:,\"";
  byte = static_cast<std::byte>(kind[random.below(kind.size())]);
}

/// False: refused.
bool try_results(std::string_view text) {
  try {
    const SweepResult sweep = parse_saved_results(text, "that.json");
    std::ostringstream sink;
    for (const ReportEntry* report : report_table().entries) report->write(sweep, {}, sink);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

TEST(SavedResultsMutation, EveryTextIsReportedOrRefused) {
  const std::string good = good_text();
  ASSERT_TRUE(try_results(good));
  const std::span<const std::byte> seed = std::as_bytes(std::span(good));
  std::size_t accepted = 0;
  constexpr std::size_t kTexts = 8'000;
  for (std::size_t i = 0; i < kTexts; ++i) {
    Random random(3, 0, i);
    std::vector<std::byte> bytes(seed.begin(), seed.end());
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      if (random.below(4) == 0) {
        mutate(bytes, random);
      } else {
        mutate_text(bytes, random);
      }
    }
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const std::vector<char> exact = [&] {
      std::vector<char> text(bytes.size());
      if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
      return text;
    }();
    accepted += try_results({exact.data(), exact.size()}) ? 1 : 0;
  }
  // Some mutations only touch a number or a word of a sentence.
  EXPECT_GT(accepted, kTexts / 100);
  EXPECT_LT(accepted, kTexts / 2);
}

}  // namespace
}  // namespace penstock

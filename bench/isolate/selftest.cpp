// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/selftest.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/analysis/cost.h"
#include "bench/isolate/isolation_json.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/statistics/distributions.h"
#include "dataflow/random.h"

namespace penstock::isolate {
namespace {

using isolate::to_json;

using Json = nlohmann::ordered_json;

/// The probability outside a 95 % interval.
constexpr double kNominal = 0.05;

/// Draws kGroup pairs and swaps A and B of each at random. If A and B are alike, swapping changes
/// nothing.
std::vector<statistics::Pair> draw_group(std::vector<statistics::Pair> pairs, Random& random) {
  for (std::size_t i = 0; i < SelftestFinding::kGroup; ++i) {
    std::swap(pairs[i], pairs[i + random.below(pairs.size() - i)]);
    if (random.below(2) == 1) std::swap(pairs[i].a, pairs[i].b);
  }
  pairs.resize(SelftestFinding::kGroup);
  return pairs;
}

/// Counts a difference beyond the margin, and a difference at all.
void count_alarm(std::span<const statistics::Pair> group, double margin, std::size_t& beyond_margin,
                 std::size_t& at_all) {
  const statistics::Verdict verdict = statistics::judge(group, margin);
  const statistics::Estimate ratio = statistics::paired_ratio(group);
  if (verdict == statistics::Verdict::slower || verdict == statistics::Verdict::faster)
    ++beyond_margin;
  if (ratio.low > 1 || ratio.high < 1) ++at_all;
}

void count_alarms(const std::vector<statistics::Pair>& pairs, double margin, std::uint64_t seed,
                  SelftestFinding& finding) {
  constexpr std::size_t kGroup = SelftestFinding::kGroup;
  for (std::size_t begin = 0; begin + kGroup <= pairs.size(); begin += kGroup) {
    ++finding.groups;
    count_alarm(std::span(pairs).subspan(begin, kGroup), margin, finding.alarms,
                finding.without_margin);
  }
  Random random(seed, pairs.size());
  for (std::size_t group = 0; group < SelftestFinding::kDrawn; ++group) {
    count_alarm(draw_group(pairs, random), margin, finding.drawn_alarms,
                finding.drawn_without_margin);
  }
}

SelftestFinding finding_of(const SelftestCase& of, const Row& a, const Row& b, double margin,
                           std::uint64_t seed) {
  SelftestFinding finding;
  finding.name = of.name;
  finding.expected_ms = of.expected_ms;
  const std::vector<statistics::Pair> pairs = analysis::step_pairs(analysis::pair_blocks(a, b));
  finding.pairs = pairs.size();
  if (pairs.size() < SelftestFinding::kGroup) return finding;
  finding.ratio = statistics::paired_ratio(pairs);
  finding.verdict = statistics::judge(pairs, margin);
  finding.detectable_percent = 100 * statistics::detectable_effect(pairs, SelftestFinding::kGroup);
  for (const statistics::Pair& pair : pairs) finding.measured_ms += (pair.a + pair.b) / 2;
  finding.measured_ms /= static_cast<double>(pairs.size());
  count_alarms(pairs, margin, seed, finding);
  return finding;
}

Json to_json(const SelftestFinding& finding) {
  return Json{{"name", finding.name},
              {"pairs", finding.pairs},
              {"ratio", to_json(finding.ratio)},
              {"verdict", to_string(finding.verdict)},
              {"pairs_in_a_group", SelftestFinding::kGroup},
              {"groups", finding.groups},
              {"alarms", finding.alarms},
              {"alarms_without_margin", finding.without_margin},
              {"drawn_groups", SelftestFinding::kDrawn},
              {"drawn_alarms", finding.drawn_alarms},
              {"drawn_alarms_without_margin", finding.drawn_without_margin},
              {"detectable_percent", finding.detectable_percent},
              {"expected_ms", finding.expected_ms},
              {"measured_ms", finding.measured_ms}};
}

void write_finding(const SelftestFinding& finding, double margin, std::ostream& out) {
  fmt::print(out, "{}: {} pairs\n", finding.name, finding.pairs);
  if (finding.pairs < SelftestFinding::kGroup) {
    fmt::print(out, "  fewer than {}: inconclusive; raise --budget\n\n", SelftestFinding::kGroup);
    return;
  }
  if (finding.expected_ms > 0) {
    fmt::print(out, "  known answer          {:.4f} ms a step, measured {:.4f} ({:+.2f} %)\n",
               finding.expected_ms, finding.measured_ms,
               100 * (finding.measured_ms / finding.expected_ms - 1));
  }
  fmt::print(out, "  B over A              {}, which is {}\n", format_estimate(finding.ratio, 4),
             to_string(finding.verdict));
  fmt::print(out,
             "  false alarms          {} of {} verdicts of {} blocks, beyond a margin of {:g} %\n",
             finding.alarms, finding.groups, SelftestFinding::kGroup, 100 * margin);
  fmt::print(out, "  without the margin    {} of {}{}\n", finding.without_margin, finding.groups,
             is_alarming(finding) ? ": far more than chance" : "");
  fmt::print(out, "  blocks drawn anew     {} of {}, and {} without the margin ({:.0f} expected)\n",
             finding.drawn_alarms, SelftestFinding::kDrawn, finding.drawn_without_margin,
             kNominal * static_cast<double>(SelftestFinding::kDrawn));
  fmt::print(out, "  smallest effect seen  {:.2f} % with {} blocks, four times out of five\n\n",
             finding.detectable_percent, SelftestFinding::kGroup);
}

}  // namespace

std::vector<SelftestCase> selftest_cases() {
  constexpr std::int32_t kBatch = 16, kImage = 64;
  RunConfig config;
  config.model = "resnet50";
  config.batch_size = kBatch;
  config.image_size = kImage;
  config.num_batches = 200;
  config.num_warmup_batches = 10;
  std::vector<SelftestCase> cases(2);
  cases[0].name = "keeping time: an emulated device of 1 ms a step";
  cases[0].config = config;
  cases[0].config.fake_location = "gpu";
  cases[0].config.device = fmt::format("emulated:img_per_s={}", 1000 * kBatch);
  cases[0].expected_ms = 1;
  cases[1].name = "working: random pixels drawn as fast as one thread can";
  cases[1].config = config;
  cases[1].config.fake_location = "cpu";
  cases[1].config.model = "null";
  return cases;
}

void judge_selftest(Selftest& test, const std::vector<SelftestCase>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Row& a = test.sweep.rows[2 * i];
    const Row& b = test.sweep.rows[2 * i + 1];
    test.findings.push_back(finding_of(cases[i], a, b, test.margin, test.sweep.seed));
    const SelftestFinding& finding = test.findings.back();
    if (is_alarming(finding)) {
      test.warnings.push_back(
          fmt::format("{}: {} of {} verdicts saw a difference where there is none; blocks on this "
                      "machine are not independent; do not trust verdicts",
                      finding.name, finding.without_margin, finding.groups));
    }
    if (finding.detectable_percent > 100 * test.margin) {
      test.warnings.push_back(
          fmt::format("{}: {} blocks would not see a difference of {:g} % here; give verdicts a "
                      "larger --budget, or make the machine quieter",
                      finding.name, SelftestFinding::kGroup, 100 * test.margin));
    }
  }
  const auto noisy = std::count_if(test.noise.begin(), test.noise.end(),
                                   [](const BlockNoise& noise) { return noise.noisy(); });
  if (noisy > 0) {
    test.warnings.push_back(
        fmt::format("the machine was not quiet in {} of {} blocks", noisy, test.noise.size()));
  }
}

bool is_alarming(const SelftestFinding& finding) {
  constexpr double kOnceInAThousand = 1e-3;
  if (finding.without_margin == 0) return false;
  const double fewer =
      statistics::binomial_cdf(finding.without_margin - 1, finding.groups, kNominal);
  return 1 - fewer < kOnceInAThousand;
}

void write_selftest_text(const Selftest& test, std::ostream& out) {
  fmt::print(out, "A against A: every configuration twice in each block, in random order.\n\n");
  for (const SelftestFinding& finding : test.findings) write_finding(finding, test.margin, out);
  for (const std::string& doubt : test.warnings) fmt::print(out, "Doubt: {}.\n", doubt);
}

Json to_json(const Selftest& test) {
  Json findings = Json::array(), noise = Json::array();
  for (const SelftestFinding& finding : test.findings) findings.push_back(to_json(finding));
  for (const BlockNoise& block : test.noise) noise.push_back(to_json(block));
  return Json{{"schema", 1},
              {"kind", "selftest"},
              {"margin", test.margin},
              {"findings", std::move(findings)},
              {"doubts", test.warnings},
              {"noise", std::move(noise)},
              {"sweep", to_json(test.sweep)}};
}

}  // namespace penstock::isolate

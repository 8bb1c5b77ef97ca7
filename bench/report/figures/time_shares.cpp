// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "Where the time of a batch goes";
constexpr double kBar = 24;

bool counts(const TimeShare& part) { return std::isfinite(part.ms.value) && part.ms.value >= 0; }

}  // namespace

std::string time_shares_figure(const std::string& label, const std::vector<TimeShare>& parts,
                               const FigureSize& size) {
  double whole = 0;
  for (const TimeShare& part : parts) whole += counts(part) ? part.ms.value : 0;
  if (!(whole > 0)) return sentence_figure(size, kTitle, "No times of batches are known.");
  const Scale x(0, whole, 0.5, size.width - 0.5);
  std::vector<LegendEntry> entries;
  std::string description;
  for (const TimeShare& part : parts) {
    if (!counts(part)) continue;
    const std::string text = fmt::format("{} {} ({} %)", part.name, estimate_text(part.ms, "ms"),
                                         fixed_text(100 * part.ms.value / whole, 0));
    entries.push_back({part.classes, text});
    description += text + ". ";
  }
  Svg svg(size, std::string(kTitle), description);
  svg.text({0, 14}, label, "strong");
  svg.text({size.width, 14}, quantity_text(whole, "ms"), "strong", Anchor::end);
  constexpr double kTop = 22;
  double from = 0;
  std::size_t entry = 0;
  for (const TimeShare& part : parts) {
    if (!counts(part)) continue;
    const std::string& text = entries[entry++].text;
    if (part.ms.value > 0) {
      const double to = from + part.ms.value;
      svg.box({x(from), kTop, x(to) - x(from), kBar}, part.classes, text);
      svg.line({x(to), kTop}, {x(to), kTop + kBar}, "edge");
      from = to;
    }
  }
  return std::move(svg).finish(legend(svg, 0, kTop + kBar + 6, size.width, entries) + 6);
}

}  // namespace penstock::report

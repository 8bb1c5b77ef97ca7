// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_tables.h"

#include <fmt/format.h>

#include <string>

#include "bench/record/report_text.h"

namespace penstock::isolate {
namespace {

std::string text_of(const std::optional<statistics::Estimate>& estimate, int decimals) {
  return estimate ? format_estimate(*estimate, decimals) : "-";
}

}  // namespace

document::Table delivery_table(const std::optional<DeliveryFinding>& delivery) {
  document::Table table{{{"a batch's time"}, {"side"}, {"ms", true}, {"%", true}}, {}};
  if (!delivery || delivery->parts.empty()) return table;
  table.columns[2].name = fmt::format("ms ({})", ends_of(delivery->parts.front().ms));
  for (const DeliveryPart& part : delivery->parts) {
    table.rows.push_back(
        {part.name, part.side, format_estimate(part.ms, 2), format_fixed(part.percent, 0)});
  }
  return table;
}

document::Table depth_table(const std::vector<Prediction>& depths) {
  document::Table table{{{"queue depth (replayed)"}, {"img/s", true}}, {}};
  for (const Prediction& depth : depths) {
    table.rows.push_back(
        {depth.change.empty() ? "as measured" : depth.change, format_fixed(depth.img_per_s, 1)});
  }
  return table;
}

document::Table ladder_table(const std::vector<RungFinding>& ladder) {
  document::Table table{{{"rung"},
                         {"adds"},
                         {"added ms", true},
                         {"lost to the ceiling %", true},
                         {"supply img/s", true}},
                        {}};
  for (const RungFinding& rung : ladder) {
    if (!rung.unavailable.empty()) continue;
    table.rows.push_back({rung.branch ? rung.name + " (a branch)" : rung.name, rung.adds,
                          text_of(rung.added_ms, 2),
                          rung.cost ? format_estimate(rung.cost->percent, 1) : "-",
                          text_of(rung.supply_img_per_s, 0)});
  }
  return table;
}

}  // namespace penstock::isolate

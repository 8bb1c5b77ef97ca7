// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/exchange_choice.h"

#include <fmt/format.h>

#include <limits>

#include "dataflow/entry.h"

namespace penstock::collectives {

std::string describe(const AllReducePlan& plan) {
  std::string text;
  for (const AllReduceChoice& choice : plan) {
    if (!text.empty()) text += ", ";
    text += choice.algorithm->name;
    if (choice.shards > 1) text += fmt::format(" in {} pieces", choice.shards);
    const bool last = choice.max_elements == std::numeric_limits<std::uint64_t>::max();
    if (!last) text += fmt::format(" up to {} elements", choice.max_elements);
    if (last && plan.size() > 1) text += " beyond";
  }
  return text;
}

AllReducePlan default_all_reduce_plan() {
  constexpr std::uint64_t kSmall = 4096;  // 16 KiB: latency costs more than bytes
  return {{.algorithm = &find_entry(all_reduce_table(), "tree"), .max_elements = kSmall},
          {.algorithm = &find_entry(all_reduce_table(), "ring")}};
}

}  // namespace penstock::collectives

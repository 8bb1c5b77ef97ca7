// SPDX-License-Identifier: Apache-2.0
#include "bench/exchange/exchange_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/collectives/all_reduce_spec.h"
#include "trainer/collectives/link_collective.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

ExchangeWay shared_memory() {
  return {.name = std::string(kSharedMemory),
          .make = [](std::span<Device* const> devices, Clock& clock, std::stop_token stop) {
            return std::make_unique<ThreadsGroup>(devices, clock, std::move(stop));
          }};
}

ExchangeWay over_links(std::string name, AllReducePlan plan, const ExchangeWish& wish) {
  return {.name = std::move(name),
          .make =
              [plan, local = wish.local_ranks, timeout = wish.timeout](
                  std::span<Device* const> devices, Clock& clock, std::stop_token stop) {
                return std::make_unique<LinkGroup>(devices, clock, timeout, std::move(stop), plan,
                                                   local);
              },
          .plan = plan};
}

AllReducePlan plan_of(const AllReduceSpec& spec) {
  AllReducePlan plan;
  for (const AllReduceRange& range : spec) {
    plan.push_back(
        {&find_entry(all_reduce_table(), range.algorithm), range.shards, range.max_elements});
  }
  return plan;
}

void add_way(std::vector<ExchangeWay>& ways, const std::string& name, const ExchangeWish& wish) {
  const bool shares_memory = canonical_name(name) == kSharedMemory;
  ExchangeWay way = shared_memory();
  if (!shares_memory) {
    const AllReduceEntry& entry = find_entry(all_reduce_table(), name);
    way = over_links(std::string(entry.name), {{.algorithm = &entry}}, wish);
  }
  const bool known = std::any_of(ways.begin(), ways.end(),
                                 [&](const ExchangeWay& other) { return other.name == way.name; });
  if (!known) ways.push_back(std::move(way));
}

}  // namespace

std::vector<ExchangeWay> exchange_ways(const ExchangeWish& wish) {
  std::vector<ExchangeWay> ways;
  for (const std::string& name : split_component_list(wish.algorithms)) {
    if (canonical_name(name) != "all") {
      add_way(ways, name, wish);
      continue;
    }
    add_way(ways, std::string(kSharedMemory), wish);
    for (const AllReduceEntry* entry : all_reduce_table().entries) {
      add_way(ways, std::string(entry->name), wish);
    }
  }
  if (!wish.all_reduce_spec.empty()) {
    const AllReduceSpec spec = parse_all_reduce_spec(wish.all_reduce_spec, "--all-reduce-spec");
    ways.push_back(over_links(wish.all_reduce_spec, plan_of(spec), wish));
  }
  return ways;
}

ExchangeCost exchange_cost(const AllReducePlan& plan, std::span<const std::size_t> buckets,
                           std::int32_t ranks, std::int32_t local_ranks) {
  ExchangeCost total;
  for (const std::size_t elements : buckets) {
    const AllReduceChoice& choice = choice_for(plan, elements);
    const double bytes = static_cast<double>(elements * sizeof(float));
    const ExchangeCost cost = choice.algorithm->cost(
        {.ranks = ranks, .local_ranks = local_ranks, .bytes = bytes / choice.shards});
    total.steps += cost.steps * choice.shards;
    total.bytes += cost.bytes * choice.shards;
  }
  return total;
}

}  // namespace penstock

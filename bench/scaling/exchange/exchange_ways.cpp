// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/exchange/exchange_ways.h"

#include <algorithm>
#include <utility>

#include "bench/config/exchange_rules.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/collectives/link_collective.h"
#include "trainer/collectives/threads.h"

namespace penstock::scaling {
namespace {

ExchangeWay between_processes(std::string name, const collectives::ExchangeChoice& choice,
                              const ExchangeArguments& arguments) {
  return {.name = std::move(name),
          .make =
              [choice, &processes = *arguments.processes, timeout = arguments.timeout](
                  std::span<Device* const> devices, Clock&, std::stop_token stop) {
                return processes.make_group({.device = *devices.front(),
                                             .patience = timeout,
                                             .stopping = {},
                                             .abandon = std::move(stop),
                                             .choice = choice});
              },
          .wire = choice.wire};
}

ExchangeWay shared_memory(const ExchangeArguments& arguments) {
  const collectives::ExchangeChoice choice{.method = collectives::ExchangeMethod::shared_memory,
                                           .wire = arguments.wire};
  if (arguments.processes != nullptr) {
    return between_processes(std::string(kSharedMemory), choice, arguments);
  }
  return {.name = std::string(kSharedMemory),
          .make =
              [choice](std::span<Device* const> devices, Clock& clock, std::stop_token stop) {
                return std::make_unique<collectives::ThreadsGroup>(devices, clock, std::move(stop),
                                                                   choice);
              },
          .wire = arguments.wire};
}

bool has_mpi(const ExchangeArguments& arguments) {
  return arguments.processes != nullptr && arguments.processes->launch().mpi;
}

/// MPI has no 16-bit floating-point type.
ExchangeWay by_mpi(std::string_view name, const ExchangeArguments& arguments) {
  if (!has_mpi(arguments)) {
    throw ConfigError(
        "--algorithm {} is of ranks that are an MPI job; start them with `mpirun -np 2 penstock "
        "allreduce ...`, or leave it out",
        name);
  }
  const collectives::ExchangeMethod method =
      name == kMpi ? collectives::ExchangeMethod::mpi_blocking : collectives::ExchangeMethod::mpi;
  return between_processes(std::string(name), {.method = method}, arguments);
}

ExchangeWay over_links(std::string name, collectives::AllReducePlan plan,
                       const ExchangeArguments& arguments) {
  const collectives::ExchangeChoice choice{.method = collectives::ExchangeMethod::links,
                                           .plan = plan,
                                           .local_ranks = arguments.local_ranks,
                                           .wire = arguments.wire};
  ExchangeWay way{.wire = arguments.wire};
  if (arguments.processes != nullptr) {
    way = between_processes(std::move(name), choice, arguments);
  } else {
    way.name = std::move(name);
    way.make = [choice, timeout = arguments.timeout](std::span<Device* const> devices, Clock& clock,
                                                     std::stop_token stop) {
      return std::make_unique<collectives::LinkGroup>(devices, clock, timeout, std::move(stop),
                                                      choice);
    };
  }
  way.plan = std::move(plan);
  return way;
}

ExchangeWay find_way(const std::string& name, const ExchangeArguments& arguments) {
  const std::string canonical = canonical_name(name);
  if (canonical == kSharedMemory) return shared_memory(arguments);
  for (const std::string_view mpi : {kMpi, kMpiNonblocking}) {
    if (canonical == mpi) return by_mpi(mpi, arguments);
  }
  const collectives::AllReduceEntry& entry = find_entry(collectives::all_reduce_table(), name);
  return over_links(std::string(entry.name), {{.algorithm = &entry}}, arguments);
}

std::vector<std::string> names_of_all(const ExchangeArguments& arguments) {
  std::vector<std::string> names;
  if (has_mpi(arguments)) names = {std::string(kMpi), std::string(kMpiNonblocking)};
  names.emplace_back(kSharedMemory);
  for (const collectives::AllReduceEntry* entry : collectives::all_reduce_table().entries)
    names.emplace_back(entry->name);
  return names;
}

void add_way(std::vector<ExchangeWay>& ways, const std::string& name,
             const ExchangeArguments& arguments) {
  ExchangeWay way = find_way(name, arguments);
  const bool known = std::ranges::find(ways, way.name, &ExchangeWay::name) != ways.end();
  if (!known) ways.push_back(std::move(way));
}

/// Adds nothing; reads and writes every element of its tensor.
class TouchingGroup final : public CollectiveGroup {
 public:
  std::unique_ptr<Collective> join(std::int32_t) override { return std::make_unique<Touching>(); }

 private:
  class Touching final : public Collective {
   public:
    World world() const noexcept override { return {}; }
    bool recordable() const noexcept override { return true; }
    void all_reduce_sum(Tensor tensor, Stream&) override {
      float* const values = static_cast<float*>(tensor.data);
      for (std::size_t i = 0; i < tensor.count; ++i) values[i] = -values[i];
    }
    void reduce_sum(Tensor, std::int32_t, Stream&) override {}
    void broadcast(Tensor, std::int32_t, Stream&) override {}
  };
};

}  // namespace

std::vector<ExchangeWay> exchange_ways(const ExchangeArguments& arguments) {
  std::vector<ExchangeWay> ways;
  for (const std::string& name : split_component_list(arguments.algorithms)) {
    if (canonical_name(name) != "all") {
      add_way(ways, name, arguments);
      continue;
    }
    for (const std::string& each : names_of_all(arguments)) add_way(ways, each, arguments);
  }
  if (!arguments.all_reduce_spec.empty()) {
    ways.push_back(over_links(arguments.all_reduce_spec,
                              all_reduce_plan(arguments.all_reduce_spec, "--all-reduce-spec"),
                              arguments));
  }
  return ways;
}

ExchangeWay memory_bound_way() {
  return {.name = std::string(kReadAndWrite),
          .make = [](std::span<Device* const>, Clock&,
                     std::stop_token) { return std::make_unique<TouchingGroup>(); },
          .adds = false};
}

collectives::ExchangeCost exchange_cost(const ExchangeWay& way,
                                        std::span<const std::size_t> buckets, std::int32_t ranks,
                                        std::int32_t local_ranks) {
  collectives::ExchangeCost total;
  for (const std::size_t elements : buckets) {
    const collectives::AllReduceChoice& choice = collectives::choice_for(*way.plan, elements);
    const double bytes = static_cast<double>(elements * element_bytes(way.wire));
    const collectives::ExchangeCost cost = choice.algorithm->cost(
        {.ranks = ranks, .local_ranks = local_ranks, .bytes = bytes / choice.shards});
    total.steps += cost.steps * choice.shards;
    total.bytes += cost.bytes * choice.shards;
  }
  return total;
}

}  // namespace penstock::scaling

// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/packed_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "dataflow/error.h"
#include "trainer/cluster/host.h"

namespace penstock {
namespace {

constexpr const char* kCutOff = "the steps of a rank are cut off";

template <typename Value>
void put(std::string& bytes, const Value* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<Value>);
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(Value));
}
void put(std::string& bytes, std::uint64_t number) { put(bytes, &number, 1); }

template <typename Value>
void take(std::string_view& bytes, Value* values, std::size_t count) {
  if (count > bytes.size() / sizeof(Value)) throw DataError(kCutOff);
  std::memcpy(values, bytes.data(), count * sizeof(Value));
  bytes.remove_prefix(count * sizeof(Value));
}
std::uint64_t take(std::string_view& bytes) {
  std::uint64_t number = 0;
  take(bytes, &number, 1);
  return number;
}

}  // namespace

std::string pack_steps(const RankSteps& steps) {
  std::string bytes;
  put(bytes, std::hash<std::string>{}(cluster::read_host_facts().identity));
  put(bytes, steps.together);
  put(bytes, std::uint64_t{steps.exchanges});
  put(bytes, steps.legs.size());
  for (const std::vector<Leg>& ranks : steps.legs) {
    put(bytes, ranks.size());
    for (const Leg& rank : ranks) {
      put(bytes, &rank.begin, 1);
      put(bytes, rank.steps.size());
      put(bytes, rank.steps.data(), rank.steps.size());
    }
  }
  return bytes;
}

void join_steps(RankSteps& all, std::string_view bytes) {
  const std::uint64_t machine = take(bytes);
  if (all.legs.empty()) all.machine = machine;
  all.together = take(bytes);
  all.exchanges = take(bytes) != 0;
  const std::uint64_t legs = take(bytes);
  if (legs > bytes.size() / sizeof(std::uint64_t)) throw DataError(kCutOff);
  all.legs.resize(std::max<std::size_t>(all.legs.size(), legs));
  for (std::vector<Leg>& ranks : all.legs) {
    const std::size_t known = ranks.size();
    for (std::uint64_t more = take(bytes); more > 0; --more) {
      Leg& rank = ranks.emplace_back();
      take(bytes, &rank.begin, 1);
      const std::uint64_t steps = take(bytes);
      if (steps > bytes.size() / sizeof(StepTimes)) throw DataError(kCutOff);
      rank.steps.resize(steps);
      take(bytes, rank.steps.data(), steps);
    }
    if (machine == all.machine || ranks.size() == known) continue;
    const Nanoseconds shift = ranks.front().begin - ranks[known].begin;
    for (Leg& rank : std::span(ranks).subspan(known)) rank.begin += shift;
  }
}

}  // namespace penstock

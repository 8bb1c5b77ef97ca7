// SPDX-License-Identifier: Apache-2.0
#include "bench/run/trace/operation_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trainer/op_names.h"

namespace penstock {
namespace {

std::string lines_of(const std::vector<OperationUse>& uses, std::size_t most) {
  std::string text = fmt::format("{:>10} {:>7} {:>9}  {}\n", "ms/step", "%", "calls", "operation");
  for (std::size_t i = 0; i < std::min(most, uses.size()); ++i) {
    text += fmt::format("{:>10.3f} {:>7.2f} {:>9.1f}  {}\n", uses[i].ms_per_step, uses[i].percent,
                        uses[i].calls_per_step, uses[i].name);
  }
  return text;
}

}  // namespace

void OperationProfile::add_step(Nanoseconds time) {
  ++steps_;
  time_ += time;
}

void OperationProfile::add(const std::string& name, Nanoseconds time) {
  Sum& sum = sums_[name];
  sum.calls += 1;
  sum.time += time;
}

void OperationProfile::add_by_arithmetic(const Graph& graph, bool trains) {
  constexpr double kBackward = 2;  // gradients of the weights, and of the input
  const double all = (trains ? 1 + kBackward : 1) * graph.forward_macs_per_image();
  if (!(all > 0)) return;
  const auto time_of = [&](double macs) {
    return std::chrono::round<Nanoseconds>(time_ * (macs / all));
  };
  sums_.clear();  // the steps so far include those of earlier calls
  const auto calls = static_cast<double>(steps_);
  for (const Node& node : graph.nodes()) {
    if (!(node.forward_macs > 0)) continue;
    const std::string type(name_of(node.op));
    sums_[fmt::format("{} forward (by arithmetic): {}", type, node.name)] = {
        calls, time_of(node.forward_macs)};
    if (!trains) continue;
    sums_[fmt::format("{} backward (by arithmetic): {}", type, node.name)] = {
        calls, time_of(kBackward * node.forward_macs)};
  }
}

std::vector<OperationUse> OperationProfile::uses_of(const std::map<std::string, Sum>& sums) const {
  const auto steps = static_cast<double>(std::max<std::size_t>(steps_, 1));
  const double whole = 1e3 * to_seconds(time_);
  std::vector<OperationUse> uses;
  for (const auto& [name, sum] : sums) {
    const double ms = 1e3 * to_seconds(sum.time);
    uses.push_back({name, sum.calls / steps, ms / steps, whole > 0 ? 100 * ms / whole : 0});
  }
  std::ranges::stable_sort(uses, std::ranges::greater(), &OperationUse::ms_per_step);
  return uses;
}

std::vector<OperationUse> OperationProfile::types() const {
  if (sums_.empty()) return {};
  std::map<std::string, Sum> types;
  Nanoseconds inside{};
  for (const auto& [name, sum] : sums_) {
    Sum& type = types[name.substr(0, name.find(": "))];
    type.calls += sum.calls;
    type.time += sum.time;
    inside += sum.time;
  }
  if (time_ > inside) {
    types["other: update, exchange, host"] = {static_cast<double>(steps_), time_ - inside};
  }
  return uses_of(types);
}

std::vector<OperationUse> OperationProfile::operations() const { return uses_of(sums_); }

std::string OperationProfile::text(std::size_t most) const {
  if (sums_.empty()) return "no operations were recorded\n";
  return fmt::format("{} steps of all ranks, {:.3f} ms each on the device\n\n{}\n{}", steps_,
                     1e3 * to_seconds(time_) / static_cast<double>(steps_),
                     lines_of(types(), sums_.size() + 1), lines_of(operations(), most));
}

}  // namespace penstock

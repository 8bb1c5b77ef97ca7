// SPDX-License-Identifier: Apache-2.0
#include "trainer/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "dataflow/random.h"

namespace penstock {
namespace {

/// FNV-1a. A parameter's values depend on its name, not on its position.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return value;
}

/// Box-Muller transform; values beyond two standard deviations are drawn again.
class TruncatedNormal {
 public:
  explicit TruncatedNormal(Random random) : random_(random) {}
  double next() {
    for (;;) {
      const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
      const double value = radius * std::cos(2 * std::numbers::pi * random_.uniform());
      if (std::abs(value) <= 2) return value;
    }
  }

 private:
  Random random_;
};

/// The standard deviation of a standard normal distribution cut at two standard deviations.
constexpr double kTruncatedDeviation = 0.87962566103423978;

}  // namespace

bool keeps_variance(const Graph& graph, NodeId node) {
  if (node + 1 == static_cast<NodeId>(graph.nodes().size())) return false;
  const auto* conv = std::get_if<Conv2d>(&graph.nodes()[static_cast<std::size_t>(node)].op);
  return conv == nullptr || !conv->bias;
}

void initial_values(const ParameterSpec& spec, bool keeps_variance, std::uint64_t seed,
                    std::span<float> plain) {
  switch (spec.role) {
    case Role::scale:
    case Role::running_variance:
      std::fill(plain.begin(), plain.end(), 1.F);
      return;
    case Role::bias:
    case Role::shift:
    case Role::running_mean:
      std::fill(plain.begin(), plain.end(), 0.F);
      return;
    case Role::weight:
      break;
  }
  TruncatedNormal normal(Random(seed, hash(spec.name)));
  const double variance = (keeps_variance ? 2. : 1.) / static_cast<double>(spec.fan_in());
  const double scale = std::sqrt(variance) / kTruncatedDeviation;
  for (float& value : plain) value = static_cast<float>(scale * normal.next());
}

void initialise(Executable& executable, const Graph& graph, std::uint64_t seed) {
  const ParameterSet& set = executable.parameters();
  std::vector<float> plain;
  for (const Parameter& parameter : set.parameters) {
    plain.resize(static_cast<std::size_t>(parameter.spec.count()));
    initial_values(parameter.spec, keeps_variance(graph, parameter.spec.node), seed, plain);
    executable.write(parameter.spec, parameter.weight, plain);
  }
  for (const Parameter& buffer : set.buffers) {
    plain.resize(buffer.weight.count);
    initial_values(buffer.spec, false, seed, plain);
    executable.write(buffer.spec, buffer.weight, plain);
  }
}

}  // namespace penstock

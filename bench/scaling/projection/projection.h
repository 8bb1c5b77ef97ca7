// SPDX-License-Identifier: Apache-2.0
// What a step that was measured would become on more devices: no measurement, and every row says
// so.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/projection/measured_step.h"
#include "bench/projection/topology.h"

namespace penstock {

inline constexpr std::string_view kProjected = "projected, not measured";

struct ProjectionPlan {
  Topology topology;
  std::vector<std::int32_t> ranks;
  std::vector<const ExchangeModel*> exchanges;
  /// Not set: each bucket goes as soon as it is ready. Else that share of the compute hides
  /// exchange: 0 hides nothing, 0.6 to 0.67 is what backward can hide, 1 hides behind the next
  /// forward too.
  std::optional<double> hidden_share;
  std::optional<double> jitter_ms;         ///< not set: the record's
  std::optional<double> sigma;             ///< what is left of the rate beside stragglers, instead
  std::optional<double> feeder_img_per_s;  ///< of a host; not set: the record's, if it shows one
};

enum class Limit : unsigned char { compute, exchange, feeder };
std::string_view to_string(Limit limit);

struct ProjectedRow {
  std::string_view exchange;
  std::int64_t ranks = 1, hosts = 1;
  double exchange_ms = 0, exposed_ms = 0;  ///< of a step
  double step_ms = 0;                      ///< exchange and stragglers included, input not
  double img_per_s = 0;                    ///< of all ranks, input included
  double efficiency = 0;                   ///< of as many devices that wait for nobody
  Limit limit = Limit::compute;
};

struct Projection {
  std::string command, record;
  MeasuredStep step;
  ProjectionPlan plan;
  std::vector<ProjectedRow> rows;  ///< by exchange, then by ranks
};

/// step = forward + (1 + slowdown) backward + exposed + jitter (slowest_of(n) - slowest_of(n0)),
/// the last for more ranks than the record's n0; img/s = min(n batch / step, feeders). Feeders are
/// those of the fullest host, for whose ranks all others wait.
std::vector<ProjectedRow> project(const MeasuredStep& step, const ProjectionPlan& plan);

void write_projection_text(const Projection& projection, std::ostream& out);
/// A row each, with a column that says that it is projected.
std::string projection_csv(const Projection& projection);
nlohmann::ordered_json to_json(const Projection& projection);
/// Efficiency over ranks, a curve for each exchange.
std::string projection_figure(const Projection& projection, const FigureSize& size);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Projects a measured step to more devices. The result is not a measurement, and every row says so.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/scaling/projection/measured_step.h"
#include "bench/scaling/projection/topology.h"

namespace penstock::scaling {

inline constexpr std::string_view kProjected = "projected, not measured";

struct ProjectionPlan {
  Topology topology;
  std::vector<std::int32_t> ranks;
  std::vector<const ExchangeModel*> exchanges;
  /// Not set: the exchange of each bucket starts as soon as the bucket is ready. Otherwise the
  /// share of compute time that hides exchange: 0 hides nothing, backward can hide 0.6 to 0.67, and
  /// 1 also hides behind the next forward.
  std::optional<double> hidden_share;
  std::optional<double> jitter_ms;         ///< not set: from the record
  std::optional<double> sigma;             ///< replaces stragglers: the share of the rate that
                                           ///< remains
  std::optional<double> feeder_img_per_s;  ///< per host; not set: from the record, if it shows a
                                           ///< limit
};

enum class Limit : unsigned char { compute, exchange, feeder };
std::string_view to_string(Limit limit);

struct ProjectedRow {
  std::string_view exchange;
  std::int64_t ranks = 1, hosts = 1;
  double exchange_ms = 0, exposed_ms = 0;  ///< per step
  double step_ms = 0;                      ///< with exchange and stragglers, without input
  double img_per_s = 0;                    ///< of all ranks, with input
  double efficiency = 0;                   ///< relative to the same number of devices that never
                                           ///< wait
  Limit limit = Limit::compute;
};

struct Projection {
  std::string command, record;
  MeasuredStep step;
  ProjectionPlan plan;
  std::vector<ProjectedRow> rows;  ///< by exchange, then by ranks
};

/// step = forward + (1 + slowdown) backward + exposed + jitter (slowest_of(n) - slowest_of(n0)).
/// The last term applies if there are more ranks than the record's n0.
/// img/s = min(n batch / step, feeders). The feeders are those of the fullest host, because all
/// other ranks wait for its ranks.
std::vector<ProjectedRow> project(const MeasuredStep& step, const ProjectionPlan& plan);

void write_projection_text(const Projection& projection, std::ostream& out);
/// One line per row, with a column that says that it is projected.
std::string projection_csv(const Projection& projection);
nlohmann::ordered_json to_json(const Projection& projection);
/// Efficiency over ranks, one curve per exchange.
std::string projection_figure(const Projection& projection, const report::FigureSize& size);

}  // namespace penstock::scaling

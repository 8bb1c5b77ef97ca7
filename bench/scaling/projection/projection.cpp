// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/projection.h"

#include <algorithm>

namespace penstock::scaling {
namespace {

constexpr double kMilli = 1e3;
/// An exchange that is exposed for a smaller share of a step is not called the limit.
constexpr double kShows = 0.01;

double slowdown_of(const ProjectionPlan& plan, std::int64_t ranks) {
  return ranks > 1 ? 1 + plan.topology.slowdown : 1;
}

ExchangeCourse course_of(const MeasuredStep& step, const ProjectionPlan& plan,
                         const ExchangeModel& exchange, std::int64_t ranks) {
  const double wire = plan.topology.bytes_per_gradient / sizeof(float);
  const auto takes = [&](double bytes) {
    return kMilli * exchange.seconds(wire * bytes, ranks, plan.topology);
  };
  if (!plan.hidden_share) {
    std::vector<ReadyBucket> buckets = step.buckets;
    for (ReadyBucket& bucket : buckets) bucket.lead_ms *= slowdown_of(plan, ranks);
    return overlapped(buckets, takes);
  }
  double all = 0;
  for (const ReadyBucket& bucket : step.buckets) all += takes(bucket.bytes);
  return hidden_share(all, step.compute_ms(), *plan.hidden_share);
}

double stragglers_ms(const MeasuredStep& step, const ProjectionPlan& plan, std::int64_t ranks) {
  if (plan.sigma) return 0;
  const double jitter = plan.jitter_ms.value_or(step.jitter_ms);
  return jitter * std::max(0.0, slowest_of(ranks) - slowest_of(step.ranks));
}

ProjectedRow project_row(const MeasuredStep& step, const ProjectionPlan& plan,
                         const ExchangeModel& exchange, std::int64_t ranks) {
  ProjectedRow row{
      .exchange = exchange.name, .ranks = ranks, .hosts = plan.topology.hosts_of(ranks)};
  const ExchangeCourse course = course_of(step, plan, exchange, ranks);
  row.exchange_ms = course.busy_ms;
  row.exposed_ms = course.exposed_ms;
  const double compute = step.forward_ms + slowdown_of(plan, ranks) * step.backward_ms;
  row.step_ms = compute + course.exposed_ms + stragglers_ms(step, plan, ranks);
  if (plan.sigma && ranks > 1) row.step_ms /= *plan.sigma;
  const double images = static_cast<double>(ranks) * step.batch;
  row.img_per_s = kMilli * images / row.step_ms;
  row.limit = course.exposed_ms > kShows * row.step_ms ? Limit::exchange : Limit::compute;
  const std::optional<double> feeder =
      plan.feeder_img_per_s ? plan.feeder_img_per_s : step.feeder_img_per_s;
  if (feeder) {
    const auto sharing = static_cast<double>(std::min(ranks, plan.topology.devices_per_host));
    const double fed = *feeder / sharing * static_cast<double>(ranks);
    if (fed < row.img_per_s) {
      row.img_per_s = fed;
      row.limit = Limit::feeder;
    }
  }
  row.efficiency = row.img_per_s / (kMilli * images / step.compute_ms());
  return row;
}

}  // namespace

std::string_view to_string(Limit limit) {
  switch (limit) {
    case Limit::compute:
      return "compute";
    case Limit::exchange:
      return "exchange";
    case Limit::feeder:
      break;
  }
  return "feeder";
}

std::vector<ProjectedRow> project(const MeasuredStep& step, const ProjectionPlan& plan) {
  std::vector<ProjectedRow> rows;
  for (const ExchangeModel* exchange : plan.exchanges) {
    for (const std::int32_t ranks : plan.ranks) {
      rows.push_back(project_row(step, plan, *exchange, ranks));
    }
  }
  return rows;
}

}  // namespace penstock::scaling

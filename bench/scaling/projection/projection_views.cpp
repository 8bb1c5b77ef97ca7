// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/document/document.h"
#include "bench/report/figures/figures.h"
#include "bench/scaling/projection/projection.h"

namespace penstock::scaling {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kSchema = 1;
constexpr double kGiga = 1e9, kMicro = 1e6;

std::string overlap_text(const ProjectionPlan& plan) {
  if (!plan.hidden_share) return "each bucket is exchanged as soon as it is ready";
  return fmt::format("{:g} of the compute hides exchange", *plan.hidden_share);
}

std::string stragglers_text(const Projection& projection) {
  const ProjectionPlan& plan = projection.plan;
  if (plan.sigma) return fmt::format("stragglers leave {:g} of the rate", *plan.sigma);
  return fmt::format("stragglers: steps vary by {:.2f} ms ({})",
                     plan.jitter_ms.value_or(projection.step.jitter_ms),
                     plan.jitter_ms ? "as given" : "the record's standard deviation");
}

std::string feeder_text(const Projection& projection) {
  const ProjectionPlan& plan = projection.plan;
  if (plan.feeder_img_per_s) {
    return fmt::format("feeders supply {:.1f} img/s a host, as given", *plan.feeder_img_per_s);
  }
  if (projection.step.feeder_img_per_s) {
    return fmt::format("feeders supply {:.1f} img/s a host, as in the record",
                       *projection.step.feeder_img_per_s);
  }
  return "feeders are not limited: the record was not short of input, so the capacity of its "
         "feeder is unknown (set --feeder-img-per-s)";
}

std::vector<std::string> assumptions(const Projection& projection) {
  const Topology& t = projection.plan.topology;
  return {
      fmt::format("{} devices a host, {:g} GB/s between them, {:g} us a message",
                  t.devices_per_host, t.local_bytes_per_s / kGiga, t.local_latency_s * kMicro),
      fmt::format("hosts: a link of {:g} GB/s, of which an exchange gets {:g}; {:g} us a "
                  "message; {} servers",
                  t.link_bytes_per_s / kGiga, t.link_efficiency, t.latency_s * kMicro, t.servers),
      fmt::format("{:g} bytes a gradient; {}; backward slows down by {:g}", t.bytes_per_gradient,
                  overlap_text(projection.plan), t.slowdown),
      stragglers_text(projection), feeder_text(projection)};
}

const ProjectedRow* find_row(const Projection& projection, std::string_view exchange,
                             std::int64_t ranks) {
  for (const ProjectedRow& row : projection.rows) {
    if (row.exchange == exchange && row.ranks == ranks) return &row;
  }
  return nullptr;
}

/// "1234 (98.1)x": with a mark for its limit.
std::string cell_of(const ProjectedRow& row) {
  constexpr std::string_view kMarks[] = {" ", "x", "f"};
  return fmt::format("{:.{}f} ({:.1f}){}", row.img_per_s, row.img_per_s < 100 ? 1 : 0,
                     100 * row.efficiency, kMarks[static_cast<std::size_t>(row.limit)]);
}

double megabytes(const MeasuredStep& step) {
  double bytes = 0;
  for (const ReadyBucket& bucket : step.buckets) bytes += bucket.bytes;
  return bytes / 1e6;
}

constexpr report::CurveLook kLooks[] = {report::CurveLook::first, report::CurveLook::second,
                                        report::CurveLook::third, report::CurveLook::fourth,
                                        report::CurveLook::fifth};

}  // namespace

void write_projection_text(const Projection& projection, std::ostream& out) {
  const MeasuredStep& step = projection.step;
  out << fmt::format(
      "Projected, not measured: {} in batches of {} per device ({}), from {:.1f} img/s on {} "
      "device{} in {}.\n\n",
      step.model, step.batch, step.what, step.img_per_s, step.ranks, step.ranks == 1 ? "" : "s",
      projection.record);
  document::Table table{{{"ranks", true}, {"hosts", true}}, {}};
  for (const ExchangeModel* exchange : projection.plan.exchanges) {
    table.columns.push_back({fmt::format("{} img/s (%)", exchange->name), true});
  }
  table.columns.push_back({"status", true});
  for (const std::int32_t ranks : projection.plan.ranks) {
    std::vector<std::string> cells{fmt::format("{}", ranks),
                                   fmt::format("{}", projection.plan.topology.hosts_of(ranks))};
    for (const ExchangeModel* exchange : projection.plan.exchanges) {
      cells.push_back(cell_of(*find_row(projection, exchange->name, ranks)));
    }
    cells.emplace_back(kProjected);
    table.rows.push_back(std::move(cells));
  }
  document::write_text(table, out);
  out << "\n%: of ideal scaling, in which no device waits; x: exchange shows; f: feeders are the "
         "limit.\n";
  for (const ExchangeModel* exchange : projection.plan.exchanges) {
    out << fmt::format("{}: {}.\n", exchange->name, exchange->summary);
  }
  out << fmt::format("\nTaken from the record: {:.1f} MB of gradients in {} bucket{};\n",
                     megabytes(step), step.buckets.size(), step.buckets.size() == 1 ? "" : "s");
  for (const std::string& note : step.notes) out << "  " << note << ".\n";
  out << "Assumed:\n";
  for (const std::string& text : assumptions(projection)) out << "  " << text << ".\n";
  out << "`penstock project --check` shows the error of this formula against published figures, "
         "and the small share of link bandwidth that they reached: measure the bandwidths that you "
         "give.\n";
}

std::string projection_csv(const Projection& projection) {
  std::string text =
      "status,exchange,ranks,hosts,img_per_s,efficiency,step_ms,exchange_ms,exposed_ms,limit\n";
  for (const ProjectedRow& row : projection.rows) {
    text += fmt::format("projected not measured,{},{},{},{:.3f},{:.5f},{:.4f},{:.4f},{:.4f},{}\n",
                        row.exchange, row.ranks, row.hosts, row.img_per_s, row.efficiency,
                        row.step_ms, row.exchange_ms, row.exposed_ms, to_string(row.limit));
  }
  return text;
}

Json to_json(const Projection& projection) {
  const MeasuredStep& step = projection.step;
  Json buckets = Json::array(), rows = Json::array();
  for (const ReadyBucket& bucket : step.buckets) {
    buckets.push_back(Json{{"bytes", bucket.bytes}, {"lead_ms", bucket.lead_ms}});
  }
  for (const ProjectedRow& row : projection.rows) {
    rows.push_back(Json{{"status", kProjected},
                        {"exchange", row.exchange},
                        {"ranks", row.ranks},
                        {"hosts", row.hosts},
                        {"img_per_s", row.img_per_s},
                        {"efficiency", row.efficiency},
                        {"step_ms", row.step_ms},
                        {"exchange_ms", row.exchange_ms},
                        {"exposed_ms", row.exposed_ms},
                        {"limit", to_string(row.limit)}});
  }
  Json record{{"file", projection.record},     {"model", step.model},
              {"batch_size", step.batch},      {"what", step.what},
              {"devices", step.ranks},         {"img_per_s", step.img_per_s},
              {"forward_ms", step.forward_ms}, {"backward_ms", step.backward_ms},
              {"jitter_ms", step.jitter_ms},   {"feeder_img_per_s_per_host", nullptr},
              {"buckets", std::move(buckets)}, {"notes", step.notes}};
  if (step.feeder_img_per_s) record["feeder_img_per_s_per_host"] = *step.feeder_img_per_s;
  return Json{{"schema", kSchema},
              {"command", projection.command},
              {"status", kProjected},
              {"record", std::move(record)},
              {"assumed", assumptions(projection)},
              {"rows", std::move(rows)}};
}

std::string projection_figure(const Projection& projection, const report::FigureSize& size) {
  const MeasuredStep& step = projection.step;
  report::ScalingCurves data{
      .title = fmt::format("{}, batch {} per device", step.model, step.batch),
      .description = "Efficiency over ranks, projected and not measured. ",
      .ranks_title = fmt::format("ranks, {} to a host", projection.plan.topology.devices_per_host),
      .value_title = "% of ideal scaling",
      .stamp = std::string(kProjected),
      .doublings = true,
      .at_least = 100,
      .curves = {}};
  for (std::size_t i = 0; i < projection.plan.exchanges.size(); ++i) {
    const std::string_view name = projection.plan.exchanges[i]->name;
    report::Curve curve{
        .name = std::string(name), .look = kLooks[i % std::size(kLooks)], .points = {}};
    for (const ProjectedRow& row : projection.rows) {
      if (row.exchange != name) continue;
      const double percent = 100 * row.efficiency;
      curve.points.push_back({static_cast<double>(row.ranks), percent, percent, percent});
    }
    if (!curve.points.empty()) {
      data.description += fmt::format("{}: {:.1f} % at {:.0f} ranks. ", name,
                                      curve.points.back().value, curve.points.back().ranks);
    }
    data.curves.push_back(std::move(curve));
  }
  return report::scaling_curves_figure(data, size);
}

}  // namespace penstock::scaling

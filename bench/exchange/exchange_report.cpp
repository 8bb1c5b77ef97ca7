// SPDX-License-Identifier: Apache-2.0
#include "bench/exchange/exchange_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/report_text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> cells(const ExchangeReport& report, std::size_t way) {
  const ExchangeTimes& times = report.times[way];
  std::vector<std::string> row{times.name, "-", "-", "-", "-", "-"};
  if (!times.seconds.empty()) {
    const ExchangeFigures figures =
        exchange_figures(times.seconds, report.bytes(), report.plan.ranks);
    row[1] = format_spread(figures.ms, 3);
    row[2] = format_fixed(figures.algbw_gb_per_s, 2);
    row[3] = format_fixed(figures.busbw_gb_per_s, 2);
  }
  if (const std::optional<ExchangeCost>& cost = report.costs[way]) {
    row[4] = fmt::format("{}", cost->steps);
    row[5] = format_fixed(cost->bytes / 1e6, 1);
  }
  row.push_back(fmt::format("{}", times.seconds.size()));
  row.emplace_back(times.checked ? "right" : "unchecked");
  return row;
}

void write_line(const std::vector<std::string>& row, const std::vector<std::size_t>& widths,
                std::ostream& out) {
  std::string line = fmt::format("{:<{}}", row[0], widths[0]);
  for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
  out << line << "\n";
}

void write_table(const ExchangeReport& report, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"algorithm", "ms (low..high)", "algbw GB/s",
                                              "busbw GB/s", "steps", "MB moved", "iterations",
                                              "sums"}};
  for (std::size_t way = 0; way < report.times.size(); ++way) rows.push_back(cells(report, way));
  std::vector<std::size_t> widths(rows.front().size());
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const std::vector<std::string>& row : rows) write_line(row, widths, out);
}

std::size_t elements_of(const ExchangePlan& plan) {
  return std::accumulate(plan.buckets.begin(), plan.buckets.end(), std::size_t{0});
}

Json json_of(const ExchangeReport& report, std::size_t way) {
  const ExchangeTimes& times = report.times[way];
  Json json{{"algorithm", times.name},
            {"iterations", times.seconds.size()},
            {"sums_checked", times.checked},
            {"time_ms_median", nullptr},
            {"time_ms_low", nullptr},
            {"time_ms_high", nullptr},
            {"algbw_gb_per_s", nullptr},
            {"busbw_gb_per_s", nullptr},
            {"steps", nullptr},
            {"bytes_moved", nullptr}};
  if (!times.seconds.empty()) {
    const ExchangeFigures figures =
        exchange_figures(times.seconds, report.bytes(), report.plan.ranks);
    json["time_ms_median"] = figures.ms.median;
    json["time_ms_low"] = figures.ms.low;
    json["time_ms_high"] = figures.ms.high;
    json["algbw_gb_per_s"] = figures.algbw_gb_per_s;
    json["busbw_gb_per_s"] = figures.busbw_gb_per_s;
  }
  if (const std::optional<ExchangeCost>& cost = report.costs[way]) {
    json["steps"] = cost->steps;
    json["bytes_moved"] = cost->bytes;
  }
  Json& list = json["times_ms"] = Json::array();
  for (const double seconds : times.seconds) list.push_back(1e3 * seconds);
  return json;
}

}  // namespace

double ExchangeReport::bytes() const {
  return static_cast<double>(elements_of(plan) * sizeof(float));
}

ExchangeFigures exchange_figures(const std::vector<double>& seconds, double bytes,
                                 std::int32_t ranks) {
  const Spread time = spread(seconds);
  ExchangeFigures figures{.ms = {1e3 * time.median, 1e3 * time.low, 1e3 * time.high}};
  if (time.median > 0) figures.algbw_gb_per_s = bytes / time.median / 1e9;
  figures.busbw_gb_per_s = figures.algbw_gb_per_s * 2 * (ranks - 1) / ranks;
  return figures;
}

void write_exchange_text(const ExchangeReport& report, std::ostream& out) {
  const std::size_t buckets = report.plan.buckets.size();
  out << fmt::format(
      "Exchange of the gradients of {}: {} elements, {:.1f} MB in {} bucket{}; {} ranks as threads "
      "of this process, in groups of {}; {} iterations of each after {} of warm-up, in turns.\n\n",
      report.model, elements_of(report.plan), report.bytes() / 1e6, buckets,
      buckets == 1 ? "" : "s", report.plan.ranks, report.local_ranks, report.plan.iterations,
      report.plan.warmup);
  write_table(report, out);
  out << "\nms: all buckets, from the first rank's begin to the last rank's end; median "
         "(lowest..highest).\n"
         "algbw = MB / ms of one rank's gradients; busbw = algbw * 2 (n - 1) / n for n ranks, as "
         "nccl-tests defines them.\n"
         "steps, MB moved: messages in a row, and what the rank that moves most sends or receives, "
         "by the algorithm's formulas.\n"
         "sums: every element was compared once, on all ranks, with the sum that it must be.\n";
  for (const std::string& note : report.notes) out << "note: " << note << ".\n";
  if (report.stopped) out << "Stopped: this is what was measured by then.\n";
}

Json to_json(const ExchangeReport& report) {
  Json json{{"command", report.command},
            {"status", report.stopped ? "partial" : "ok"},
            {"model", report.model},
            {"ranks", report.plan.ranks},
            {"ranks_are", "threads"},
            {"local_ranks", report.local_ranks},
            {"elements", elements_of(report.plan)},
            {"bytes", report.bytes()},
            {"bucket_mib", report.bucket_mib},
            {"bucket_elements", report.plan.buckets},
            {"num_iters", report.plan.iterations},
            {"num_warmup", report.plan.warmup},
            {"seed", report.plan.seed},
            {"notes", report.notes}};
  Json& rows = json["rows"] = Json::array();
  for (std::size_t way = 0; way < report.times.size(); ++way) rows.push_back(json_of(report, way));
  return json;
}

}  // namespace penstock

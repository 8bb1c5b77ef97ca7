// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/exchange/exchange_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "bench/document/document.h"
#include "bench/record/report_text.h"

namespace penstock::scaling {
namespace {

using Json = nlohmann::ordered_json;

/// The times of the way with this name; null if there are none.
const WayTimes* find_times(const ExchangeReport& report, std::string_view name) {
  const auto found = std::ranges::find(report.times, name, &WayTimes::name);
  return found == report.times.end() || found->seconds.empty() ? nullptr : &*found;
}

/// By iteration, those with a time of 0 left out.
std::vector<double> speeds_against(const WayTimes& way, const WayTimes& other) {
  std::vector<double> speeds;
  for (std::size_t i = 0; i < std::min(way.seconds.size(), other.seconds.size()); ++i) {
    if (way.seconds[i] > 0) speeds.push_back(other.seconds[i] / way.seconds[i]);
  }
  return speeds;
}

/// The speed of `way` relative to `other`: the ratio of times, other over way, in each iteration.
/// None if they have no common iteration.
std::optional<Spread> speed_against(const WayTimes& way, const WayTimes& other) {
  const std::vector<double> speeds = speeds_against(way, other);
  return speeds.empty() ? std::nullopt : std::optional(spread(speeds));
}

std::optional<Spread> speed_against(const ExchangeReport& report, std::size_t way,
                                    std::string_view name) {
  const WayTimes* const other = find_times(report, name);
  return other == nullptr ? std::nullopt : speed_against(report.times[way], *other);
}

/// How near a way came to the bound of the same iteration. Something else delayed the bound if it
/// took longer than the exchange, so such an iteration has none. None if these are half of all.
std::optional<Spread> share_of_bound(const ExchangeReport& report, std::size_t way) {
  const WayTimes* const bound = find_times(report, kReadAndWrite);
  if (bound == nullptr) return std::nullopt;
  std::vector<double> shares = speeds_against(report.times[way], *bound);
  const std::size_t all = shares.size();
  std::erase_if(shares, [](double share) { return share > 1; });
  if (2 * shares.size() <= all) return std::nullopt;
  return spread(shares);
}

std::vector<std::string> cells(const ExchangeReport& report, std::size_t way) {
  const WayTimes& times = report.times[way];
  std::vector<std::string> row{times.name, std::string(to_string(times.wire)), "-", "-", "-", "-"};
  if (!times.seconds.empty()) {
    const ExchangeFigures figures =
        exchange_figures(times.seconds, report.bytes(), report.plan.ranks);
    row[2] = format_spread(figures.ms, 3);
    row[3] = format_fixed(figures.algbw_gb_per_s, 2);
    row[4] = format_fixed(figures.busbw_gb_per_s, 2);
  }
  if (const std::optional<Spread> share = share_of_bound(report, way)) {
    row[5] = format_fixed(100 * share->median, 0) + " %";
  }
  if (find_times(report, kMpi) != nullptr) {
    const std::optional<Spread> speed = speed_against(report, way, kMpi);
    row.push_back(speed ? format_spread(*speed, 2) : "-");
  }
  const std::optional<collectives::ExchangeCost>& cost = report.costs[way];
  row.push_back(cost ? fmt::format("{}", cost->steps) : "-");
  row.push_back(cost ? format_fixed(cost->bytes / 1e6, 1) : "-");
  row.push_back(fmt::format("{}", times.seconds.size()));
  row.emplace_back(times.checked ? "right" : "unchecked");
  return row;
}

document::Table table_of(const ExchangeReport& report) {
  document::Table table{{{"algorithm"},
                         {"wire", true},
                         {"ms (low..high)", true},
                         {"algbw GB/s", true},
                         {"busbw GB/s", true},
                         {"of bound", true}},
                        {}};
  if (find_times(report, kMpi) != nullptr) table.columns.push_back({"x mpi (low..high)", true});
  for (const char* const name : {"steps", "MB moved", "iterations", "sums"}) {
    table.columns.push_back({name, true});
  }
  for (std::size_t way = 0; way < report.times.size(); ++way) {
    if (report.times[way].adds) table.rows.push_back(cells(report, way));
  }
  return table;
}

std::size_t elements_of(const ExchangePlan& plan) {
  return std::accumulate(plan.buckets.begin(), plan.buckets.end(), std::size_t{0});
}

Json spread_of(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"median", spread->median}, {"low", spread->low}, {"high", spread->high}};
}

/// The rate at which all ranks together read and write their gradients, in GB/s.
double memory_gb_per_s(const ExchangeReport& report, double seconds) {
  return seconds > 0 ? 2 * report.bytes() * report.plan.ranks / seconds / 1e9 : 0;
}

Json json_of_bound(const ExchangeReport& report) {
  const WayTimes* const bound = find_times(report, kReadAndWrite);
  if (bound == nullptr) return nullptr;
  const Spread time = spread(bound->seconds);
  return {{"time_ms_median", 1e3 * time.median},
          {"time_ms_low", 1e3 * time.low},
          {"time_ms_high", 1e3 * time.high},
          {"bytes", 2 * report.bytes() * report.plan.ranks},
          {"gb_per_s", memory_gb_per_s(report, time.median)}};
}

Json json_of(const ExchangeReport& report, std::size_t way) {
  const WayTimes& times = report.times[way];
  Json json{{"algorithm", times.name},
            {"iterations", times.seconds.size()},
            {"sums_checked", times.checked},
            {"wire", to_string(times.wire)},
            {"time_ms_median", nullptr},
            {"time_ms_low", nullptr},
            {"time_ms_high", nullptr},
            {"algbw_gb_per_s", nullptr},
            {"busbw_gb_per_s", nullptr},
            {"share_of_bound", spread_of(share_of_bound(report, way))},
            {"speed_against_mpi", spread_of(speed_against(report, way, kMpi))},
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
  if (const std::optional<collectives::ExchangeCost>& cost = report.costs[way]) {
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
      "Exchange of the gradients of {}: {} elements, {:.1f} MB in {} bucket{}; {} ranks as {}, in "
      "groups of {}; {} iterations of each after {} of warm-up, in turns.\n\n",
      report.model, elements_of(report.plan), report.bytes() / 1e6, buckets,
      buckets == 1 ? "" : "s", report.plan.ranks, report.ranks_are, report.local_ranks,
      report.plan.iterations, report.plan.warmup);
  document::write_text(table_of(report), out);
  out << "\nms: all buckets, from the first rank's begin to the last rank's end; median "
         "(lowest..highest).\n"
         "algbw = MB / ms of one rank's gradients; busbw = algbw * 2 (n - 1) / n for n ranks, as "
         "nccl-tests defines them.\n"
         "steps, MB moved: messages in a row, and what the rank that moves most sends or receives, "
         "by the algorithm's formulas.\n"
         "sums: every element was compared once, on all ranks, with the sum that it must be.\n";
  if (const WayTimes* const bound = find_times(report, kReadAndWrite)) {
    const Spread time = spread(bound->seconds);
    out << fmt::format(
        "bound: each rank reads its gradients from memory once and writes them once, all ranks at "
        "a time, and adds nothing: {} ms, {:.1f} GB/s of memory.\n"
        "of bound: the bound / ms of the same iteration, median of those in which nothing delayed "
        "the bound. -: the bound was slower in half of the iterations or more.\n",
        format_spread({1e3 * time.median, 1e3 * time.low, 1e3 * time.high}, 3),
        memory_gb_per_s(report, time.median));
  }
  if (find_times(report, kMpi) != nullptr) {
    out << "x mpi: how often as fast as MPI_Allreduce in the same iteration.\n";
  }
  for (const std::string& note : report.notes) out << "note: " << note << ".\n";
  if (report.stopped) out << "Stopped: this is what was measured by then.\n";
}

Json to_json(const ExchangeReport& report) {
  Json json{{"command", report.command},
            {"status", report.stopped ? "partial" : "ok"},
            {"model", report.model},
            {"ranks", report.plan.ranks},
            {"ranks_are", report.ranks_are},
            {"local_ranks", report.local_ranks},
            {"elements", elements_of(report.plan)},
            {"bytes", report.bytes()},
            {"bucket_elements", report.plan.buckets},
            {"num_iters", report.plan.iterations},
            {"num_warmup", report.plan.warmup},
            {"seed", report.plan.seed},
            {"memory_bound", json_of_bound(report)},
            {"notes", report.notes}};
  Json& rows = json["rows"] = Json::array();
  for (std::size_t way = 0; way < report.times.size(); ++way) {
    if (report.times[way].adds) rows.push_back(json_of(report, way));
  }
  return json;
}

}  // namespace penstock::scaling

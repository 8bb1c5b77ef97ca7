// SPDX-License-Identifier: Apache-2.0
#include "bench/doctor/doctor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/record/machine.h"

namespace penstock::doctor {
namespace {

/// Processes in the table.
constexpr std::size_t kMostRows = 12;

document::Table table_of(const Observation& seen, const std::vector<ProcessUse>& uses) {
  document::Table table{.columns = {{"PID", true},
                                    {"name"},
                                    {"cores used", true},
                                    {"waiting for a core", true},
                                    {"busy threads", true},
                                    {"threads", true},
                                    {"memory MB", true},
                                    {"growth MB/s", true}}};
  for (const ProcessUse& use : uses) {
    if (table.rows.size() == kMostRows) break;
    const double waits = use.wait_cores / std::max(1e-9, use.cpu_cores + use.wait_cores);
    table.rows.push_back(
        {std::to_string(use.pid), use.name, fmt::format("{:.2f}", use.cpu_cores),
         seen.reasons.contains("core_wait") ? "not known" : fmt::format("{:.0f} %", 100 * waits),
         std::to_string(use.busy_threads), std::to_string(use.threads),
         fmt::format("{:.0f}", use.rss_bytes / 1e6),
         tells_growth(seen) ? fmt::format("{:.1f}", use.growth_bytes_per_s / 1e6 + 0.0) : "-"});
  }
  return table;
}

/// "1.30 cores"; empty: not known.
std::string lost_text(const Finding& finding) {
  return finding.lost ? fmt::format("{:.2f} {}", *finding.lost, finding.lost_unit) : "";
}

document::Block block_of(const Finding& finding) {
  if (!is_bad(finding.severity)) return document::Paragraphs{};
  const std::string lost = lost_text(finding);
  return document::Section{
      .heading = fmt::format("{}: {}{}", finding.check, to_string(finding.severity),
                             lost.empty() ? "" : ", " + lost),
      .blocks = {document::Facts{{{"Found", finding.found + "."},
                                  {"It may cost", std::string(finding.cost)},
                                  {"Find out", std::string(finding.find_out)},
                                  {"Do", std::string(finding.remedy)}}}}};
}

document::List list_of(const std::string& heading, Severity severity,
                       const std::vector<Finding>& findings) {
  document::List list{.heading = heading};
  for (const Finding& finding : findings) {
    if (finding.severity != severity) continue;
    list.items.push_back(fmt::format("{}: {}", finding.check, finding.found));
  }
  return list;
}

}  // namespace

document::Document document_of(const Observation& seen, const std::vector<Finding>& findings) {
  const auto count = [&](Severity severity) {
    return std::ranges::count(findings, severity, &Finding::severity);
  };
  const std::vector<ProcessUse> uses = uses_of(seen);
  const std::string process =
      fmt::format("Process {} ({}) and {} below it, for {:.1f} s: ", seen.root_pid,
                  seen.last.processes.at(seen.root_pid).name, uses.size() - 1, window_s(seen));
  if (const std::string reason = not_begun(seen); !reason.empty()) {
    return {document::Verdict{.lines = {{"open", process + reason + "."}}, .answers = true}};
  }
  const auto problems = count(Severity::problem), looks = count(Severity::look);
  const std::string most = findings.empty() ? "" : lost_text(findings.front());
  document::Document document{document::Verdict{
      .lines = {{problems > 0 ? "bad"
                 : looks > 0  ? "open"
                              : "good",
                 fmt::format(
                     "{}{} problem{}, {} worth a look, {} not known, {} ok.{}", process, problems,
                     problems == 1 ? "" : "s", looks, count(Severity::unknown), count(Severity::ok),
                     most.empty()
                         ? ""
                         : fmt::format(" Most is lost to {}: {}.", findings.front().check, most))}},
      .answers = true}};
  if (seen.ended) {
    document.emplace_back(document::Paragraphs{
        .texts = {"The process ended in the window. The findings are from the time before."}});
  }
  for (const Finding& finding : findings) document.push_back(block_of(finding));
  document.emplace_back(list_of("Not known:", Severity::unknown, findings));
  document.emplace_back(list_of("In order:", Severity::ok, findings));
  document.emplace_back(table_of(seen, uses));
  if (uses.size() > kMostRows) {
    document.emplace_back(document::Paragraphs{
        .texts = {fmt::format("{} more processes used less CPU time.", uses.size() - kMostRows)}});
  }
  return document;
}

nlohmann::ordered_json to_json(const Observation& seen, const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  Json json{{"schema", kSchema},    {"verb", "doctor"},           {"date", utc_now()},
            {"pid", seen.root_pid}, {"window_s", window_s(seen)}, {"samples", seen.samples},
            {"ended", seen.ended},  {"findings", Json::array()},  {"processes", Json::array()}};
  if (const std::string reason = not_begun(seen); !reason.empty()) json["not_begun"] = reason;
  for (const Finding& finding : findings) {
    Json figures = Json::object();
    for (const auto& [name, value] : finding.figures) figures[std::string(name)] = value;
    json["findings"].push_back({{"check", finding.check},
                                {"severity", to_string(finding.severity)},
                                {"found", finding.found},
                                {"cost", finding.cost},
                                {"find_out", finding.find_out},
                                {"remedy", finding.remedy},
                                {"lost", finding.lost ? Json(*finding.lost) : Json()},
                                {"lost_unit", finding.lost_unit},
                                {"figures", figures}});
  }
  const auto if_known = [&](const std::string& figure, double value) {
    return seen.reasons.contains(figure) ? Json(nullptr) : Json(value);
  };
  for (const ProcessUse& use : uses_of(seen)) {
    json["processes"].push_back(
        {{"pid", use.pid},
         {"name", use.name},
         {"cpu_cores", use.cpu_cores},
         {"wait_cores", if_known("core_wait", use.wait_cores)},
         {"threads", use.threads},
         {"busy_threads", use.busy_threads},
         {"preemptions_per_s", use.preemptions_per_s},
         {"rss_bytes", if_known("rss", use.rss_bytes)},
         {"growth_bytes_per_s", tells_growth(seen) ? Json(use.growth_bytes_per_s) : Json()},
         {"major_faults_per_s", use.major_faults_per_s},
         {"read_bytes_per_s", if_known("read_bytes", use.read_bytes_per_s)}});
  }
  return json;
}

}  // namespace penstock::doctor

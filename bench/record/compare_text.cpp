// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/document/document.h"
#include "bench/record/compare.h"
#include "bench/record/report_text.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

struct Names {
  std::string_view before, after;
};

std::string rate(double img_per_s) {
  constexpr double kSmall = 10;
  return img_per_s > 0 ? format_fixed(img_per_s, img_per_s < kSmall ? 4 : 1) : "-";
}

std::string signed_percent(double percent) {
  const std::string text = format_fixed(percent, 1);
  return percent > 0 && text.find_first_not_of("0.") != std::string::npos ? "+" + text : text;
}

/// "-3.2 [-4.0, -2.4]".
std::string change(const RowChange& row) {
  const statistics::Estimate& percent = row.change_percent;
  if (percent.samples == 0) return "-";
  if (percent.samples < 2) return signed_percent(percent.value) + " [unknown]";
  return fmt::format("{} [{}, {}]", signed_percent(percent.value), signed_percent(percent.low),
                     signed_percent(percent.high));
}

document::Table table_of(const Comparison& comparison) {
  document::Table table{{{"configuration"},
                         {comparison.unit + "/s before"},
                         {comparison.unit + "/s after"},
                         {fmt::format("change % [{:g} %]", 100 * comparison.confidence)},
                         {"verdict"}},
                        {}};
  for (const RowChange& row : comparison.rows) {
    std::string verdict(to_string(row.verdict));
    if (!row.reason.empty()) verdict += ": " + row.reason;
    table.rows.push_back(
        {row.label, rate(row.before_img_per_s), rate(row.after_img_per_s), change(row), verdict});
  }
  return table;
}

document::Document document_of(const Comparison& comparison, const Names& names) {
  document::Document result{
      document::Paragraphs{{fmt::format("Before: {}; after: {}.", names.before, names.after)}},
      document::List{
          "Not comparable: these settings differ, and rates of different workloads cannot be "
          "compared. Measure both with the same settings, or list with --allow what may differ.",
          comparison.obstacles},
      document::List{"Settings that changed:", comparison.settings},
      document::List{"Environment that changed:", comparison.environment},
      document::List{"In one of the two only:", comparison.unmatched}};
  if (comparison.rows.empty()) return result;
  result.emplace_back(table_of(comparison));
  result.emplace_back(document::Paragraphs{{fmt::format(
      "Rates are geometric means over {}. slower and faster: the interval excludes 0 and the "
      "change exceeds the margin of {:g} %; equal: the {:g} % interval lies within it.",
      comparison.paired ? "runs, which alternated; intervals are Student's on the logarithms of "
                          "the pairs' ratios"
                        : "repetitions, intervals Welch's on their logarithms",
      100 * comparison.margin, 100 * (2 * comparison.confidence - 1))}});
  return result;
}

/// JSON has no infinity and no NaN, so these become null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void write_json(const Comparison& comparison, const Names& names, std::ostream& out) {
  Json rows = Json::array();
  const auto if_images = [&](double rate) {
    return comparison.unit == "img" ? Json(rate) : Json(nullptr);
  };
  for (const RowChange& row : comparison.rows) {
    rows.push_back(Json{{"configuration", row.label},
                        {"before_rate", row.before_img_per_s},
                        {"after_rate", row.after_img_per_s},
                        {"before_img_per_s", if_images(row.before_img_per_s)},
                        {"after_img_per_s", if_images(row.after_img_per_s)},
                        {"change_percent", number(row.change_percent.value)},
                        {"change_percent_low", number(row.change_percent.low)},
                        {"change_percent_high", number(row.change_percent.high)},
                        {"samples", row.change_percent.samples},
                        {"verdict", to_string(row.verdict)},
                        {"reason", row.reason}});
  }
  constexpr int kSchema = 1;  // docs/schemas/comparison.schema.json
  const Json json{{"schema", kSchema},
                  {"before", names.before},
                  {"after", names.after},
                  {"unit", comparison.unit},
                  {"margin_percent", 100 * comparison.margin},
                  {"obstacles", comparison.obstacles},
                  {"settings", comparison.settings},
                  {"environment", comparison.environment},
                  {"unmatched", comparison.unmatched},
                  {"rows", std::move(rows)},
                  {"exit_code", exit_code_of(comparison)}};
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace

void write_comparison(const Comparison& comparison, std::string_view before, std::string_view after,
                      std::string_view format, std::ostream& out) {
  const Names names{before, after};
  if (format == "text") return document::write_text(document_of(comparison, names), out);
  if (format == "markdown") return document::write_markdown(document_of(comparison, names), out);
  if (format == "json") return write_json(comparison, names, out);
  throw ConfigError("--format is '{}'; comparisons come as text, markdown or json", format);
}

}  // namespace penstock

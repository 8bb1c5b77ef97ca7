// SPDX-License-Identifier: Apache-2.0
// results.json: all data, with every step time. Lists of numbers are on one line.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/record/result_json.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

using Json = nlohmann::ordered_json;

bool is_flat(const Json& json) {
  return !json.is_structured() || json.empty() ||
         (json.is_array() && std::none_of(json.begin(), json.end(), [](const Json& element) {
            return element.is_structured();
          }));
}

void write_value(const Json& json, const std::string& indent, std::ostream& out) {
  if (is_flat(json)) {
    out << json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  out << (json.is_object() ? "{" : "[");
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    out << separator << indent << "  ";
    if (json.is_object()) out << Json(key).dump() << ": ";
    write_value(value, indent + "  ", out);
    separator = ",\n";
  }
  out << "\n" << indent << (json.is_object() ? "}" : "]");
}

void write(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  write_value(to_json(sweep), "", out);
  out << "\n";
}

}  // namespace

extern constinit const ReportEntry json_report{
    .name = "json",
    .summary = "everything, including every step time",
    .file = "results.json",
    .write = write,
};

}  // namespace penstock::report

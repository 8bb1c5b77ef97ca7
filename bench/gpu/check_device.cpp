// SPDX-License-Identifier: Apache-2.0
// The verb device: the properties that the device reports.
#include <fmt/format.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/gpu/check_report.h"
#include "bench/gpu/workbench.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::gpu {
namespace {

using Json = nlohmann::json;

Json read_json(const std::filesystem::path& path) {
  try {
    return Json::parse(InputFile(path).text());
  } catch (const std::exception& error) {
    throw DataError(
        "cannot read {} as JSON ({}): give --expect a description of a device, such as one that "
        "this verb printed",
        path.string(), error.what());
  }
}

std::string text_at(const Json& json, const std::string& key) {
  return json.contains(key) ? json.at(key).dump() : "missing";
}

/// Adds one note for each key that differs.
void compare(const Json& found, const Json& expected, CheckReport& report) {
  Json keys = expected;
  keys.update(found);
  std::size_t different = 0;
  for (const auto& [key, value] : keys.items()) {
    const std::string here = text_at(found, key), there = text_at(expected, key);
    if (here == there) continue;
    ++different;
    report.add("dnn_properties." + key, Verdict::note, {},
               fmt::format("{}, expected {}", here, there));
  }
  report.add("dnn_properties", Verdict::note, {{"different_keys", double(different)}});
}

}  // namespace

void check_device(const CheckSettings& settings, CheckReport& report) {
  const std::unique_ptr<Driver> driver = open_driver(settings);
  const DeviceFacts& facts = driver->facts();
  report.add("device", Verdict::note,
             {{"capability", facts.capability},
              {"multiprocessors", facts.multiprocessors},
              {"memory_gib", static_cast<double>(facts.memory_bytes) / (std::size_t{1} << 30)},
              {"free_gib", static_cast<double>(driver->free_bytes()) / (std::size_t{1} << 30)}},
             facts.name);
  report.add("versions", Verdict::note, {},
             fmt::format("driver {}, runtime {}, DNN library {}", facts.driver_version,
                         facts.runtime_version, facts.dnn_version));
  report.add("dnn_properties", Verdict::note, {}, facts.dnn_properties);
  if (settings.expected.empty()) return;
  const Json found = Json::parse(facts.dnn_properties, nullptr, false);
  if (found.is_object()) {
    compare(found, read_json(settings.expected), report);
  } else {
    report.add("dnn_properties", Verdict::skip, {}, "this device has none in JSON");
  }
}

}  // namespace penstock::gpu

// SPDX-License-Identifier: Apache-2.0
#include "bench/record/json_field.h"

#include <fmt/format.h>

#include <cmath>

#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string excerpt(const Json& json) {
  constexpr std::size_t kLongest = 60;
  if (json.is_object()) return "an object";
  if (json.is_array()) return fmt::format("a list of {}", json.size());
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

void JsonField::refuse(std::string_view expected) const {
  throw DataError("{} is {}; expected {}", path_.empty() ? "the whole" : path_, excerpt(json_),
                  expected);
}

bool JsonField::has(std::string_view name) const {
  return json_.is_object() && json_.find(std::string(name)) != json_.end();
}

JsonField JsonField::at(std::string_view name) const {
  if (!json_.is_object()) refuse(fmt::format("an object with '{}' in it", name));
  const auto found = json_.find(std::string(name));
  if (found == json_.end()) {
    throw DataError("{} has no '{}'", path_.empty() ? "the whole" : path_, name);
  }
  return JsonField(*found, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name));
}

std::vector<JsonField> JsonField::elements() const {
  if (!json_.is_array()) refuse("a list");
  std::vector<JsonField> fields;
  for (const Json& element : json_) {
    fields.emplace_back(element, fmt::format("{}[{}]", path_, fields.size()));
  }
  return fields;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members() const {
  if (!json_.is_object()) refuse("an object");
  std::vector<std::pair<std::string, JsonField>> fields;
  for (const auto& [name, value] : json_.items()) {
    fields.emplace_back(name, JsonField(value, fmt::format("{}.{}", path_, name)));
  }
  return fields;
}

double JsonField::number() const {
  if (!json_.is_number()) refuse("a number");
  const double value = json_.get<double>();
  if (!std::isfinite(value)) refuse("a finite number");
  return value;
}

double JsonField::number_or_nan() const {
  return is_null() ? std::numeric_limits<double>::quiet_NaN() : number();
}

double JsonField::amount() const {
  const double value = number();
  if (value < 0) refuse("a number of at least 0");
  return value;
}

std::int64_t JsonField::integer(std::int64_t low, std::int64_t high) const {
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  const bool fits = !json_.is_number_unsigned() ||
                    json_.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargest);
  if (json_.is_number_integer() && fits) {
    const auto value = json_.get<std::int64_t>();
    if (value >= low && value <= high) return value;
  }
  refuse(fmt::format("a whole number from {} to {}", low, high));
}

std::int32_t JsonField::count() const {
  return static_cast<std::int32_t>(integer(0, std::numeric_limits<std::int32_t>::max()));
}

std::uint64_t JsonField::unsigned_integer() const {
  if (json_.is_number_unsigned()) return json_.get<std::uint64_t>();
  return static_cast<std::uint64_t>(integer(0));
}

bool JsonField::boolean() const {
  if (!json_.is_boolean()) refuse("true or false");
  return json_.get<bool>();
}

std::string JsonField::text() const {
  if (!json_.is_string()) refuse("a string");
  return json_.get<std::string>();
}

}  // namespace penstock

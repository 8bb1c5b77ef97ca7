// SPDX-License-Identifier: Apache-2.0
// Compares JSON with a JSON Schema: the keywords that Penstock's own schema uses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock {

/// Finds where a text departs from a schema.
class SchemaCheck {
 public:
  using Json = nlohmann::ordered_json;

  explicit SchemaCheck(Json schema) : root_(std::move(schema)) {}

  /// The first place that does not match, with the reason; empty if all matches.
  std::string mismatch(const Json& json) const { return mismatch(root_, json, ""); }

 private:
  std::string mismatch(const Json& schema, const Json& json, const std::string& place) const {
    const auto says = [&](std::string_view what) { return fmt::format("{}: {}", place, what); };
    if (schema.contains("$ref")) {
      const auto name = schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
      return mismatch(root_.at("$defs").at(name), json, place);
    }
    if (schema.contains("anyOf")) {
      std::vector<std::string> reasons;
      for (const Json& each : schema["anyOf"]) reasons.push_back(mismatch(each, json, place));
      const bool any = std::find(reasons.begin(), reasons.end(), "") != reasons.end();
      return any ? "" : fmt::format("{}", fmt::join(reasons, "; or "));
    }
    if (schema.contains("const") && schema["const"] != json) return says("another constant");
    if (schema.contains("type") && !has_type(schema["type"], json)) return says(json.type_name());
    if (schema.contains("enum")) {
      const Json& names = schema["enum"];
      if (std::find(names.begin(), names.end(), json) == names.end()) return says("not in enum");
    }
    if (json.is_number() && schema.contains("minimum") && json < schema["minimum"]) {
      return says("below the minimum");
    }
    if (json.is_number() && schema.contains("maximum") && json > schema["maximum"]) {
      return says("above the maximum");
    }
    if (json.is_array() && schema.contains("items")) {
      for (std::size_t i = 0; i < json.size(); ++i) {
        const std::string wrong =
            mismatch(schema["items"], json[i], fmt::format("{}[{}]", place, i));
        if (!wrong.empty()) return wrong;
      }
    }
    return json.is_object() ? object_mismatch(schema, json, place) : "";
  }

  std::string object_mismatch(const Json& schema, const Json& json,
                              const std::string& place) const {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!json.contains(name.get<std::string>())) {
        return fmt::format("{}: no {}", place, name.get<std::string>());
      }
    }
    for (const auto& [name, value] : json.items()) {
      const std::string below = place + "." + name;
      const Json& properties = schema.value("properties", Json::object());
      std::string wrong;
      if (properties.contains(name)) {
        wrong = mismatch(properties.at(name), value, below);
      } else if (const Json others = schema.value("additionalProperties", Json(true));
                 others.is_object()) {
        wrong = mismatch(others, value, below);
      } else if (!others.get<bool>()) {
        wrong = below + ": not in the schema";
      }
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  static bool has_type(const Json& type, const Json& json) {
    if (type.is_array()) {
      return std::any_of(type.begin(), type.end(),
                         [&](const Json& each) { return has_type(each, json); });
    }
    const auto name = type.get<std::string>();
    if (name == "integer") return json.is_number_integer();
    return name == json.type_name();
  }

  const Json root_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Writes, reads and describes records as JSON, by their fields.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/record/fields.h"
#include "bench/record/json_field.h"
#include "bench/record/run_result.h"

namespace penstock {

/// The last value of a closed set, which begins at 0 and which `to_string` spells; -1: no such set.
template <typename>
inline constexpr int kLastValue = -1;
template <>
inline constexpr int kLastValue<Status> = static_cast<int>(Status::draining);
template <>
inline constexpr int kLastValue<StageRole> = static_cast<int>(StageRole::sends);

template <>
inline constexpr int kLastValue<Culprit> = static_cast<int>(Culprit::undecided);

template <typename T>
concept IsClosedSet = kLastValue<T>
>= 0;

template <IsClosedSet T>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (int i = 0; i <= kLastValue<T>; ++i) names.push_back(to_string(static_cast<T>(i)));
  return names;
}

namespace detail {

template <typename>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename>
inline constexpr bool is_list = false;
template <typename T>
inline constexpr bool is_list<std::vector<T>> = true;
template <typename>
inline constexpr bool is_map = false;
template <typename T>
inline constexpr bool is_map<std::map<std::string, T>> = true;
template <typename>
inline constexpr bool always_false = false;

template <typename Record, typename Act>
void for_each_field(Act act) {
  std::apply([&](const auto&... field) { (act(field), ...); }, FieldsOf<Record>::list);
}

}  // namespace detail

template <typename T>
concept HasFields = requires {
  FieldsOf<T>::list;
};

/// The JSON of a record, of one of its values, or of a list of records.
template <typename T>
nlohmann::ordered_json json_of(const T& value) {
  using Json = nlohmann::ordered_json;
  if constexpr (HasFields<T>) {
    Json json = Json::object();
    detail::for_each_field<T>([&](const auto& field) {
      const auto& member = value.*field.member;
      if constexpr (detail::is_list<std::remove_cvref_t<decltype(member)>>) {
        if (field.presence == Presence::if_any && member.empty()) return;
      }
      if constexpr (detail::is_optional<std::remove_cvref_t<decltype(member)>>) {
        if (field.presence == Presence::if_any && !member) return;
      }
      json[std::string(field.key)] = json_of(member);
    });
    return json;
  } else if constexpr (detail::is_optional<T>) {
    return value ? json_of(*value) : Json(nullptr);
  } else if constexpr (detail::is_list<T>) {
    Json list = Json::array();
    for (const auto& each : value) list.push_back(json_of(each));
    return list;
  } else if constexpr (IsClosedSet<T>) {
    return to_string(value);
  } else {
    return value;
  }
}

/// Reads what json_of wrote into `value`, whose lists and maps are empty. A text that `may_lack`
/// fields has schema 1. Throws DataError with the place of a value that is wrong.
template <typename T>
void read(const JsonField& text, T& value, Range range = Range::any, bool may_lack = false) {
  if constexpr (HasFields<T>) {
    detail::for_each_field<T>([&](const auto& field) {
      const bool optional =
          field.presence == Presence::since_2 ? may_lack : field.presence != Presence::always;
      const bool earlier = !field.earlier_key.empty() && !text.has(field.key);
      const std::string_view key = earlier ? field.earlier_key : field.key;
      if (optional && !text.has(key)) return;
      read(text.at(key), value.*field.member, field.range);
    });
  } else if constexpr (detail::is_optional<T>) {
    if (!text.is_null()) read(text, value.emplace(), range);
  } else if constexpr (detail::is_list<T>) {
    for (const JsonField& each : text.elements()) read(each, value.emplace_back(), range);
  } else if constexpr (detail::is_map<T>) {
    constexpr bool kNumbers = std::is_same_v<typename T::mapped_type, double>;
    for (const auto& [name, each] : text.members()) {
      if (kNumbers && each.is_null()) continue;  // it was not finite
      read(each, value[name], range);
    }
  } else if constexpr (IsClosedSet<T>) {
    const std::string name = text.text();
    const std::vector<std::string_view> names = names_of<T>();
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      text.refuse(fmt::format("{} or {}", fmt::join(std::span(names).first(names.size() - 1), ", "),
                              names.back()));
    }
    value = static_cast<T>(found - names.begin());
  } else if constexpr (std::is_same_v<T, double>) {
    value = range == Range::not_negative ? text.amount()
            : range == Range::or_unknown ? text.number_or_nan()
                                         : text.number();
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    value = range == Range::byte ? static_cast<std::int32_t>(text.integer(0, 255)) : text.count();
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    value = range == Range::not_negative ? text.integer(0) : text.integer();
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    value = text.unsigned_integer();
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text.boolean();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text.text();
  } else {
    static_assert(detail::always_false<T>, "a type that JSON texts of results do not have");
  }
}

/// The JSON Schema of what json_of writes for a T.
template <typename T>
nlohmann::ordered_json schema_of(Range range = Range::any) {
  using Json = nlohmann::ordered_json;
  if constexpr (HasFields<T>) {
    Json properties = Json::object(), required = Json::array();
    detail::for_each_field<T>([&](const auto& field) {
      using Value = std::remove_cvref_t<decltype(std::declval<T>().*field.member)>;
      Json& property = properties[std::string(field.key)] = schema_of<Value>(field.range);
      property["description"] = field.meaning;
      if (field.presence != Presence::if_any) required.push_back(field.key);
    });
    return Json{{"type", "object"},
                {"properties", std::move(properties)},
                {"required", std::move(required)},
                {"additionalProperties", false}};
  } else if constexpr (detail::is_optional<T>) {
    Json schema = schema_of<typename T::value_type>(range);
    schema["type"] = Json::array({schema["type"], "null"});
    return schema;
  } else if constexpr (detail::is_list<T>) {
    return Json{{"type", "array"}, {"items", schema_of<typename T::value_type>(range)}};
  } else if constexpr (detail::is_map<T>) {
    constexpr bool kNumbers = std::is_same_v<typename T::mapped_type, double>;
    return Json{{"type", "object"},
                {"additionalProperties",
                 schema_of<typename T::mapped_type>(kNumbers ? Range::or_unknown : range)}};
  } else if constexpr (IsClosedSet<T>) {
    return Json{{"type", "string"}, {"enum", names_of<T>()}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return Json{{"type", "boolean"}};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Json{{"type", "string"}};
  } else {
    Json schema{{"type", std::is_integral_v<T> ? "integer" : "number"}};
    if (range == Range::or_unknown) schema["type"] = Json::array({"number", "null"});
    const bool from_0 = range == Range::not_negative || range == Range::byte ||
                        (std::is_integral_v<T> && !std::is_same_v<T, std::int64_t>);
    if (from_0) schema["minimum"] = 0;
    if (range == Range::byte) schema["maximum"] = 255;
    return schema;
  }
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Reads JSON that another program wrote. A field knows its place in the text, so that messages can
// name it: "runs[3].window_s is "ten"; expected a number". Every access throws DataError if the
// value is not what the caller expects. Nothing is converted silently.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class JsonField {
 public:
  /// `json` must outlive the field; `path` is its name in messages.
  explicit JsonField(const nlohmann::ordered_json& json, std::string path = {})
      : json_(json), path_(std::move(path)) {}

  /// A member; throws if it is missing or this field is not an object.
  JsonField at(std::string_view name) const;
  bool has(std::string_view name) const;
  bool is_null() const { return json_.is_null(); }
  bool is_object() const { return json_.is_object(); }
  /// The elements of a list; throws if this field is not a list.
  std::vector<JsonField> elements() const;
  /// Names and values of an object, in the order of the text.
  std::vector<std::pair<std::string, JsonField>> members() const;

  double number() const;         ///< must be finite
  double number_or_nan() const;  ///< null stands for a number that is not finite
  double amount() const;         ///< a number of at least 0
  std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  std::int32_t count() const;  ///< a whole number from 0 that fits into 32 bits
  std::uint64_t unsigned_integer() const;
  bool boolean() const;
  std::string text() const;

  /// Throws DataError: "PATH is VALUE; expected WHAT".
  [[noreturn]] void refuse(std::string_view expected) const;

  const nlohmann::ordered_json& json() const noexcept { return json_; }
  const std::string& path() const noexcept { return path_; }

 private:
  const nlohmann::ordered_json& json_;
  std::string path_;
};

}  // namespace penstock

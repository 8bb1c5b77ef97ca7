// SPDX-License-Identifier: Apache-2.0
// A value of a JSON text that somebody else wrote, and where in the text it stands, so that what is
// wrong with it can be said: "runs[3].window_s is "ten"; expected a number". Every access throws
// DataError where the value is not what the caller expects. Nothing is converted silently.
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
  /// `json` outlives the field; `path` is how messages call it.
  explicit JsonField(const nlohmann::ordered_json& json, std::string path = {})
      : json_(json), path_(std::move(path)) {}

  /// A member; throws where it is missing, or where this is no object.
  JsonField at(std::string_view name) const;
  bool has(std::string_view name) const;
  bool is_null() const { return json_.is_null(); }
  bool is_object() const { return json_.is_object(); }
  /// Of a list; throws where this is none.
  std::vector<JsonField> elements() const;
  /// Names and values of an object, in the order of the text.
  std::vector<std::pair<std::string, JsonField>> members() const;

  double number() const;         ///< finite
  double number_or_nan() const;  ///< null is what JSON has instead of numbers that are not finite
  double amount() const;         ///< a number of at least 0
  std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  std::int32_t count() const;  ///< a whole number from 0 that fits into 32 bits
  std::uint64_t unsigned_integer() const;
  bool boolean() const;
  /// Control characters but line ends and tabs are blanks: they would steer a terminal.
  std::string text() const;
  std::vector<double> amounts() const;         ///< a list of amount
  std::vector<double> numbers() const;         ///< a list of number
  std::vector<double> numbers_or_nan() const;  ///< a list of number_or_nan
  std::vector<std::string> texts() const;

  /// Throws DataError: "PATH is VALUE; expected WHAT".
  [[noreturn]] void refuse(std::string_view expected) const;

  const nlohmann::ordered_json& json() const noexcept { return json_; }
  const std::string& path() const noexcept { return path_; }

 private:
  const nlohmann::ordered_json& json_;
  std::string path_;
};

}  // namespace penstock

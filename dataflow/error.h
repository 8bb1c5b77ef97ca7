// SPDX-License-Identifier: Apache-2.0
// The kinds of error that a component may throw. Each message has four parts: what was attempted,
// the value, what was expected, what to do. End of data is not an error: it is an empty lease or
// false.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "dataflow/assertion.h"

// Code in one library may catch an error that another library throws.
#pragma GCC visibility push(default)

namespace penstock {

/// The root of all errors that Penstock throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// Makes the text as fmt::format() does.
  template <typename Value, typename... More>
  Error(fmt::format_string<Value, More...> text, Value&& value, More&&... more)
      : std::runtime_error(
            fmt::format(text, std::forward<Value>(value), std::forward<More>(more)...)) {}
};

/// An error that the user can fix: a flag, a value, a path, a missing file.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A known component that this machine or this build does not support. The row is skipped with the
/// reason.
class Unavailable : public Error {
 public:
  using Error::Error;
};

/// A damaged image or message. The text names the file, offset or index.
class DataError : public Error {
 public:
  using Error::Error;
};

/// A device call failed. The text names the call, its code and the device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A timeout while waiting for something outside. The text names what it was, and how long the wait
/// took.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock

#pragma GCC visibility pop

// SPDX-License-Identifier: Apache-2.0
// The kinds of error that a component may throw. Each message has four parts: what was attempted,
// the value, what was expected, what to do. End of data is not an error: it is an empty lease or
// false.
#pragma once

#include <stdexcept>
#include <string>

// Code in one library may catch an error that another library throws.
#pragma GCC visibility push(default)

namespace penstock {

/// The root of all errors that Penstock throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
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

/// Checks an invariant, in every build. Not for hot loops, and not for user mistakes.
#define PENSTOCK_ASSERT(condition)                                                  \
  do {                                                                              \
    if (!(condition))                                                               \
      ::penstock::assertion_failed(#condition, __builtin_FILE(), __builtin_LINE()); \
  } while (false)

namespace penstock {
[[noreturn]] inline void assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(std::string("broken invariant: ") + condition + " at " + file + ":" +
                         std::to_string(line) + "; please report this");
}
}  // namespace penstock

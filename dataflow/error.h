// SPDX-License-Identifier: Apache-2.0
// The kinds of failure that leave a component. Each message has four parts: what was attempted, the
// value, what was expected, what to do. End of data is not an error: it is an empty lease or false.
#pragma once

#include <stdexcept>
#include <string>

// Whoever catches one may have opened the library that throws it.
#pragma GCC visibility push(default)

namespace penstock {

/// Root of everything that Penstock throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user can fix it: a flag, a value, a path, a file that is not there.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// Known, but not to be had on this machine or in this build; the row is skipped with the reason.
class Unavailable : public Error {
 public:
  using Error::Error;
};

/// A damaged image or message; the text names file, offset or index.
class DataError : public Error {
 public:
  using Error::Error;
};

/// A device's own call failed; the text carries the call, its code and the device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// Something outside did not happen in time; the text names what was waited for, and how long.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock

#pragma GCC visibility pop

/// Broken invariants, in every build, outside hot loops. Not for user mistakes.
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

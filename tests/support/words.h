// SPDX-License-Identifier: Apache-2.0
// Command lines of the programs that a test starts.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/processes/child_process.h"

namespace penstock {

using Words = std::vector<std::string>;

/// `first`, then `more`.
inline Words joined(Words first, const Words& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

/// Runs a program to its end.
inline ChildExit exit_of(Words words, std::chrono::seconds timeout = std::chrono::seconds(50)) {
  ChildProcess child({.arguments = std::move(words), .timeout = timeout});
  return child.wait();
}

}  // namespace penstock

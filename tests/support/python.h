// SPDX-License-Identifier: Apache-2.0
// The system's Python, which writes what other people's programs write.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/child_process.h"

namespace penstock {

/// Runs a script with arguments, and returns what it prints. Throws std::runtime_error with its
/// last words where it fails.
inline std::string run_python(const std::string& script, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"/usr/bin/python3", "-c", script});
  ChildProcess child({.arguments = std::move(arguments), .timeout = std::chrono::seconds(60)});
  const ChildExit& exit = child.wait();
  if (exit.cause != ChildExit::Cause::ended || exit.code != 0 || exit.signal != 0) {
    throw std::runtime_error("python: " + exit.describe());
  }
  return exit.output;
}

/// Whether there is a Python that has these modules: "numpy, msgpack".
inline bool python_has(const std::string& modules) {
  if (!std::filesystem::exists("/usr/bin/python3")) return false;
  try {
    run_python("import " + modules);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace penstock

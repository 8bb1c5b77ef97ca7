// SPDX-License-Identifier: Apache-2.0
// Runs the system's Python, which writes files as other programs write them.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/run/processes/child_process.h"

namespace penstock {

/// Runs a script with arguments and returns its output. If it fails, throws std::runtime_error with
/// its last words.
inline std::string run_python(const std::string& script, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"/usr/bin/python3", "-c", script});
  ChildProcess child({.arguments = std::move(arguments), .timeout = std::chrono::seconds(60)});
  const ChildExit& exit = child.wait();
  if (exit.cause != ChildExit::Cause::ended || exit.code != 0 || exit.signal != 0) {
    throw std::runtime_error("python: " + exit.describe());
  }
  return exit.output;
}

/// True if there is a Python that has these modules, such as "numpy, msgpack".
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

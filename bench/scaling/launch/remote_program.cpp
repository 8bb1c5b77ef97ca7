// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/remote_program.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "bench/config/flags.h"
#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "penstock_build.h"
#include "trainer/backends/gpu/library.h"

namespace penstock::scaling {
namespace {

constexpr Nanoseconds kCopying = std::chrono::minutes(5);

/// Runs the shell `script` on `host`, with `input` as its standard input. Throws Error.
std::string run_there(const Host& host, const std::string& agent, const std::string& script,
                      const std::string& input, std::string_view doing,
                      const std::stop_token& stop) {
  const std::string command = fmt::format("exec {} {} {} < {}", agent, shell_word(host.name),
                                          shell_word(script), shell_word(input));
  ChildProcess child({.arguments = {"/bin/sh", "-c", command}, .timeout = kCopying});
  const ChildExit& exit = child.wait(stop);
  if (exit.cause == ChildExit::Cause::ended && exit.signal == 0 && exit.code == 0) {
    return exit.output;
  }
  throw Error("{} {} failed: it {}", doing, host.name, exit.describe());
}

/// Copies to a new name first, because a running program cannot be overwritten.
void copy_file(const Host& host, const std::string& agent, const std::filesystem::path& file,
               const std::string& folder, const std::stop_token& stop) {
  const std::string to = shell_word(folder + "/" + file.filename().native());
  const std::string script = fmt::format(
      "mkdir -p {0} && cat > {1}.$$ && chmod 755 {1}.$$ && mv {1}.$$ {1}", shell_word(folder), to);
  run_there(host, agent, script, file.native(),
            fmt::format("copying {} to", file.filename().native()), stop);
}

}  // namespace

std::string copy_program(const std::filesystem::path& program, std::span<const Host> hosts,
                         const std::string& folder, const std::string& agent,
                         const std::stop_token& stop) {
  if (!folder.starts_with('/')) {
    throw ConfigError("--remote-dir is '{}'; expected an absolute path, the same on all machines",
                      folder);
  }
  const std::filesystem::path library = gpu::find_driver_library(program);
  const std::filesystem::path copy = std::filesystem::path(folder) / program.filename();
  for (const Host& host : hosts) {
    copy_file(host, agent, program, folder, stop);
    if (!library.empty()) copy_file(host, agent, library, folder, stop);
    const std::string said = run_there(host, agent, shell_word(copy.native()) + " --version",
                                       "/dev/null", "starting the copy on", stop);
    if (said.find(PENSTOCK_BUILD_VERSION) == std::string::npos) {
      throw Error("starting the copy on {} failed: it said '{}'; expected version {}", host.name,
                  said.substr(0, said.find('\n')), PENSTOCK_BUILD_VERSION);
    }
  }
  return copy.native();
}

}  // namespace penstock::scaling

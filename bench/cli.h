// SPDX-License-Identifier: Apache-2.0
// The entry point of the program: verbs, signals and exit codes.
#pragma once

#include <chrono>
#include <functional>
#include <semaphore>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/config/flags.h"
#include "dataflow/entry.h"

namespace penstock {

/// Receives a signal. `by_terminal`: a key of the terminal sent it to the whole process group, so
/// children in that group have it too.
using SignalHandler = std::function<void(int signal, bool by_terminal)>;

/// The input of a verb.
struct Invocation {
  std::string program;  ///< path of this executable, for child processes
  std::vector<std::string> arguments;
  std::stop_token stop;  ///< requested by SIGINT, SIGTERM and SIGHUP
  /// Ends the process at once with the exit code of the signal that requested `stop`. For work that
  /// has nothing to save.
  std::function<void()> leave = [] {};
  /// For a verb that passes signals on to a child. From now on SIGINT, SIGTERM, SIGHUP,
  /// SIGUSR1 and SIGUSR2 call the handler, on another thread, and neither request `stop` nor change
  /// the exit code. A call with an empty handler ends that, and waits for a handler that runs.
  std::function<void(SignalHandler)> redirect_signals = [](const SignalHandler&) {};
};

/// For work that has nothing to save, such as the preparation of a run.
/// While this object exists, a stop request gives the work half a second to end and to save its
/// findings. Then it calls `leave`, on the thread that requests the stop, to end the process. The
/// working thread makes and destroys the object.
class LeaveOnStop {
 public:
  LeaveOnStop(const std::stop_token& stop, std::function<void()> leave)
      : leave_(std::move(leave)), at_stop_(stop, [this] {
          constexpr std::chrono::milliseconds kToEnd{500};
          if (!ended_.try_acquire_for(kToEnd)) leave_();
        }) {}
  LeaveOnStop(const LeaveOnStop&) = delete;
  LeaveOnStop& operator=(const LeaveOnStop&) = delete;
  ~LeaveOnStop() { ended_.release(); }

 private:
  const std::function<void()> leave_;
  std::binary_semaphore ended_{0};
  std::stop_callback<std::function<void()>> at_stop_;  // last member: it uses the others
};

/// A verb: the word after `penstock`.
struct VerbEntry {
  std::string_view name{}, summary{};
  /// Returns the exit code. May throw; main turns errors into a message and an exit code.
  int (*run)(const Invocation&) = nullptr;
};

/// Every verb of this program. The build generates it from the component lists.
const Table<VerbEntry>& verb_table();

/// Runs the whole program for main: finds the verb, installs signal handlers, and maps errors to
/// exit codes.
int run_command_line(int argc, char** argv);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// penstock doctor: checks a running training from outside, or a command that it starts, and says
// what of the machine is in its way.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/doctor/doctor_report.h"
#include "bench/document/terminal.h"
#include "bench/verbs/user_command.h"
#include "dataflow/clock.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr Nanoseconds kShortest = std::chrono::seconds(1), kLongest = std::chrono::minutes(10);

std::int32_t process_of(const std::vector<std::string>& words) {
  if (words.size() != 1) {
    throw ConfigError(
        "`penstock doctor` got {} words; expected one process number or a command: `penstock "
        "doctor PID`, `penstock doctor -- COMMAND`",
        words.size());
  }
  const std::int64_t pid = parse_integer(words.front(), "PID");
  if (pid < 1 || pid > std::numeric_limits<std::int32_t>::max()) {
    throw ConfigError("PID is {}; expected the number of a process, at least 1", pid);
  }
  return static_cast<std::int32_t>(pid);
}

struct Arguments {
  Nanoseconds window = std::chrono::seconds(5), after = std::chrono::seconds(30);
  bool stop_command = false;
  std::string json;
};

/// Watches the process and reports to `out`, which belongs to the file descriptor `fd`.
void examine(std::int32_t pid, const Arguments& arguments, std::optional<OutputFile>& file,
             const std::stop_token& stop, std::ostream& out, int fd) {
  SteadyClock clock;
  const doctor::Observation seen =
      doctor::observe(pid, doctor::TreeReader(pid, getpid()), arguments.window, clock, stop);
  const std::vector<doctor::Finding> findings = doctor::findings_of(seen);
  const auto width = static_cast<std::size_t>(document::style_of(fd).width);
  document::write_text(doctor::document_of(seen, findings), out, width);
  out << std::flush;
  if (!file) return;
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // names may hold any bytes
  file->write(doctor::to_json(seen, findings).dump(2, ' ', false, kReplace) + "\n");
  file->commit();
}

/// Starts the command and examines it once it has run for `after`. Standard output is the
/// command's.
int examine_command(const std::vector<std::string>& command, const Arguments& arguments,
                    std::optional<OutputFile>& file, const Invocation& invocation) {
  std::stop_source ended;
  UserCommand started(invocation);
  ChildProcess& child =
      started.start({.arguments = command, .on_end = [&] { ended.request_stop(); }});
  SteadyClock clock;
  const Time begin = clock.now();
  clock.sleep_until(begin + arguments.after, ended.get_token());
  if (ended.stop_requested()) {
    const ChildExit& exit = child.wait();
    throw ConfigError(
        "the command {} after {:.1f} s, before it was examined; set --after to less than that, now "
        "{:.1f} s",
        exit.describe(), to_seconds(clock.now() - begin), to_seconds(arguments.after));
  }
  examine(child.pid(), arguments, file, ended.get_token(), std::cerr, STDERR_FILENO);
  if (arguments.stop_command) {
    child.stop();
    return 0;
  }
  if (!ended.stop_requested()) {
    fmt::print(stderr, "\npenstock doctor: the command goes on; Ctrl-C ends it\n");
  }
  return exit_code_of(child.wait());
}

int run(const Invocation& invocation) {
  Arguments arguments;
  const SplitArguments split = split_at_dashes(invocation.arguments);
  std::vector<std::string> words;
  const FlagGroup flag, started{"With a command"};
  const std::vector<Flag> flags{
      flag.time("seconds", "time to watch, from 1s to 10min; growth of memory needs 60s", "5s",
                arguments.window),
      flag.text("json", "file for all findings and figures as JSON; default: none", arguments.json),
      started.time("after", "time that the command runs before it is examined", "30s",
                   arguments.after),
      started.boolean("stop_command", "end the command after the report, with SIGINT",
                      arguments.stop_command)};
  if (!parse_flags({.verb = "doctor",
                    .summary = "Checks a running training from outside, through /proc and /sys: "
                               "cores, threads, memory, storage, NUMA. PID is the training; its "
                               "child processes count. A command is started and checked.",
                    .examples = "doctor 4711\n"
                                "doctor $(pgrep -of train.py) --seconds 30s\n"
                                "doctor 4711 --json doctor.json\n"
                                "doctor --after 1min -- python3 train.py",
                    .arguments = "PID | -- COMMAND ..."},
                   flags, split.own, &words)) {
    return 0;
  }
  if (arguments.window < kShortest || arguments.window > kLongest) {
    throw ConfigError("--seconds is outside 1s to 10min; expected a time such as 5s");
  }
  if (split.command) {
    if (!words.empty()) {
      throw ConfigError(
          "`penstock doctor` got '{}' before `--`; expected a process number or a command, not "
          "both",
          words.front());
    }
    expect_command("doctor", *split.command);
  } else if (is_typed("after", split.own) || is_typed("stop_command", split.own)) {
    throw ConfigError(
        "--after and --stop-command need a command: `penstock doctor -- python3 train.py`");
  }
  const std::int32_t pid = split.command ? 0 : process_of(words);
  std::optional<OutputFile> file;  // a path that cannot be written is refused before the window
  if (!arguments.json.empty()) file.emplace(arguments.json);
  if (split.command) return examine_command(*split.command, arguments, file, invocation);
  examine(pid, arguments, file, invocation.stop, std::cout, STDOUT_FILENO);
  return 0;
}

}  // namespace

extern constinit const VerbEntry doctor_verb{
    .name = "doctor",
    .summary = "check a running training from outside: what of the machine is in its way",
    .run = run,
};

}  // namespace penstock

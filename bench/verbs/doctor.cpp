// SPDX-License-Identifier: Apache-2.0
// penstock doctor: checks a running training from outside, and says what of the machine is in its
// way.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/doctor/doctor_report.h"
#include "bench/report/terminal.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr Nanoseconds kShortest = std::chrono::seconds(1), kLongest = std::chrono::minutes(10);

std::int32_t process_of(const std::vector<std::string>& words) {
  if (words.size() != 1) {
    throw ConfigError(fmt::format(
        "`penstock doctor` got {} words; expected one process number: `penstock doctor PID`",
        words.size()));
  }
  const std::int64_t pid = parse_integer(words.front(), "PID");
  if (pid < 1 || pid > std::numeric_limits<std::int32_t>::max()) {
    throw ConfigError(fmt::format("PID is {}; expected the number of a process, at least 1", pid));
  }
  return static_cast<std::int32_t>(pid);
}

int run(const Invocation& invocation) {
  Nanoseconds window = std::chrono::seconds(5);
  std::string json;
  std::vector<std::string> words;
  const FlagGroup flag;
  const std::vector<Flag> flags{
      flag.time("seconds", "time to watch, from 1s to 10min", "5s", window),
      flag.text("json", "file for all findings and figures as JSON; default: none", json)};
  if (!parse_flags({.verb = "doctor",
                    .summary = "Checks a running training from outside, through /proc and /sys: "
                               "cores, quota, threads, memory, /dev/shm, storage, frequency, NUMA, "
                               "files. PID is the training; its child processes count.",
                    .examples = "doctor 4711\n"
                                "doctor $(pgrep -of train.py) --seconds 30s\n"
                                "doctor 4711 --json doctor.json",
                    .arguments = "PID"},
                   flags, invocation.arguments, &words)) {
    return 0;
  }
  const std::int32_t pid = process_of(words);
  if (window < kShortest || window > kLongest) {
    throw ConfigError("--seconds is outside 1s to 10min; expected a time such as 5s");
  }
  std::optional<OutputFile> file;  // a path that cannot be written is refused before the window
  if (!json.empty()) file.emplace(json);
  SteadyClock clock;
  const doctor::Observation seen =
      doctor::observe(pid, doctor::TreeReader(pid, getpid()), window, clock, invocation.stop);
  const std::vector<doctor::Finding> findings = doctor::findings_of(seen);
  const auto width = static_cast<std::size_t>(report::style_of(STDOUT_FILENO).width);
  document::write_text(doctor::document_of(seen, findings), std::cout, width);
  std::cout << std::flush;
  if (file) {
    constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // names may hold any bytes
    file->write(doctor::to_json(seen, findings).dump(2, ' ', false, kReplace) + "\n");
    file->commit();
  }
  return 0;
}

}  // namespace

extern constinit const VerbEntry doctor_verb{
    .name = "doctor",
    .summary = "check a running training from outside: what of the machine is in its way",
    .run = run,
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/child_run.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/record/exit_code.h"
#include "bench/record/machine.h"
#include "bench/record/result_json.h"
#include "bench/sweep/private_folder.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// Messages that may wait in each socket. The number is small to keep the reserve short.
constexpr std::string_view kHighWaterMark = "2";
/// Longest path of a Unix socket on Linux (unix(7)), with its closing zero.
constexpr std::size_t kMaxSocketPath = 108;

/// The beginning of `text`, without line ends and control characters.
std::string excerpt(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string result(text.substr(0, kLongest));
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, ' ');
  return text.size() > kLongest ? result + "..." : result;
}

RunResult failed(const RunConfig& config, int exit_code, std::string reason) {
  RunResult result;
  result.config = config;
  result.status = Status::failed;
  result.exit_code = exit_code;
  result.reason = std::move(reason);
  return result;
}

/// How the process of `result` ended, and what it said after the notes, which the result has too.
std::string end_of(const ChildExit& exit, const RunResult& result) {
  ChildExit end{.cause = exit.cause,
                .code = exit.code,
                .signal = exit.signal,
                .output = {},
                .last_words = {}};
  const std::string said = exit.last_words + "\n";
  std::size_t errors = 0;
  for (const std::string& note : result.notes) {
    const std::string line = fmt::format("penstock: {}\n", note);  // as `penstock run` prints it
    const std::size_t at = said.rfind(line);
    if (at != std::string::npos) errors = std::max(errors, at + line.size());
  }
  if (errors < said.size()) end.last_words = exit.last_words.substr(errors);
  return end.describe();
}

/// The connection between a run and its producer.
struct Connection {
  std::string endpoint, hwm;
  bool run_binds = true;
  std::string served = "host";  ///< the producer's feeder: `host` (pixels) or `queue` (image files)
};

bool has_option(const FeederEntry& feeder, std::string_view name) {
  return std::ranges::count(feeder.options, name, &OptionSpec::name) > 0;
}

bool takes_image_files(const FeederEntry& feeder, const Options& options) {
  return has_option(feeder, "encoded") && options.flag("encoded");
}

Connection make_connection(const FeederEntry& feeder, const Options& options,
                           const std::filesystem::path& folder) {
  const std::filesystem::path socket = folder / "feed";
  if (socket.native().size() >= kMaxSocketPath) {
    throw ConfigError(
        "cannot make the socket '{}': its path is {} bytes long; expected at most {}; set TMPDIR "
        "to a shorter path",
        socket.native(), socket.native().size(), kMaxSocketPath - 1);
  }
  return {.endpoint = "ipc://" + socket.native(),
          .hwm = options.given("hwm") ? options.text("hwm") : std::string(kHighWaterMark),
          .run_binds = !options.given("bind") || options.flag("bind"),
          .served = takes_image_files(feeder, options) ? "queue" : "host"};
}

/// `text` plus the options that it lacks for this connection.
std::string connected(const std::string& text, const Options& options,
                      const Connection& connection) {
  std::string result = text + (text.find(':') == std::string::npos ? ":" : ",");
  const char quote = connection.endpoint.find('\'') == std::string::npos ? '\'' : '"';
  result += fmt::format("endpoint={0}{1}{0}", quote, connection.endpoint);
  if (!options.given("bind")) result += ",bind=true";
  if (!options.given("hwm") && !options.given("buffer")) result += ",hwm=" + connection.hwm;
  return result;
}

ChildCommand run_command(const RunConfig& config, const ChildRunOptions& options) {
  ChildCommand command{.arguments = {options.program, "run", "--json"},
                       .timeout = options.timeout,
                       .show_stderr = options.show_stderr};
  for (std::string& flag : to_flags(config)) command.arguments.push_back(std::move(flag));
  if (!options.on_progress) return command;
  command.pipe_flag = "--progress-fd=";
  command.on_line = [&options](std::string_view line) {
    if (const auto progress = progress_from_line(line)) options.on_progress(*progress);
  };
  return command;
}

ChildCommand serve_command(const RunConfig& config, const Connection& connection,
                           const ChildRunOptions& options, const std::vector<std::string>& more) {
  ChildCommand command{
      .arguments = {options.program, "serve", "--fake-location=" + connection.served,
                    "--model=" + config.model, fmt::format("--batch-size={}", config.batch_size),
                    fmt::format("--image-size={}", config.image_size),
                    fmt::format("--classes={}", config.classes),
                    "--endpoint=" + connection.endpoint, "--hwm=" + connection.hwm,
                    fmt::format("--bind={}", !connection.run_binds)},
      .show_stderr = options.show_stderr};
  if (connection.served != "host") {
    command.arguments.push_back("--encoded");
    command.arguments.push_back("--data-dir=" + config.data_dir);
  }
  command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  return command;
}

/// Flags for a producer that sends in the form that these options expect; none if the feeder has no
/// such options.
std::vector<std::string> sender_flags(const FeederEntry& feeder, const Options& options) {
  if (has_option(feeder, "credit") && options.integer("credit") != 0) {
    return {options.flag("shared_memory") ? "--shared-memory" : "--credit"};
  }
  if (takes_image_files(feeder, options) || !has_option(feeder, "format")) return {};
  // Framed messages carry their sending time, so they are the default.
  const std::string& format = options.text("format");
  return {"--format=" + (format == "auto" ? std::string("framed") : format)};
}

RunResult run_with_producer(const RunConfig& config, const FeederEntry& feeder,
                            const ChildRunOptions& options, const std::stop_token& stop) {
  const PrivateFolder folder;
  const Options given = options_of(config.fake_location, feeder.options);
  const Connection connection = make_connection(feeder, given, folder.path());
  RunConfig connected_config = config;
  connected_config.fake_location = connected(config.fake_location, given, connection);

  std::stop_source end_run;
  const std::vector<std::string> flags = sender_flags(feeder, given);
  ChildCommand serve = serve_command(config, connection, options, flags);
  serve.on_end = [end_run]() mutable { end_run.request_stop(); };  // no more batches will come
  ChildProcess producer(std::move(serve));
  const std::stop_callback forward(stop, [&] { end_run.request_stop(); });
  ChildProcess run(run_command(connected_config, options));
  RunResult result = result_of(run.wait(end_run.get_token()), connected_config);
  const ChildExit& producer_exit = producer.stop();
  if (result.status != Status::ok && producer_exit.cause == ChildExit::Cause::ended &&
      !stop.stop_requested()) {
    result.status = Status::failed;
    result.exit_code = 4;  // peer lost
    result.reason =
        "its producer, `penstock serve`, ended before the run did: " + producer_exit.describe();
  }
  result.config.fake_location = config.fake_location;  // hides the temporary path
  result.notes.push_back(
      fmt::format("fed by `penstock serve --fake-location {}{} --hwm {}{}` over ipc://",
                  connection.served, connection.served == "host" ? "" : " --encoded",
                  connection.hwm, flags.empty() ? "" : " " + flags.front()));
  return result;
}

}  // namespace

bool needs_producer(const RunConfig& config, const FeederEntry& feeder) {
  if (!feeder.needs_producer) return false;
  const Options options = options_of(config.fake_location, feeder.options);
  return !options.given("endpoint") && !options.given("producer");
}

RunResult result_of(const ChildExit& exit, const RunConfig& config) {
  using Json = nlohmann::ordered_json;
  const bool late = exit.cause == ChildExit::Cause::timed_out;
  const int code = late ? 5 : 6;
  const Json json = Json::parse(exit.output, nullptr, false);
  if (json.is_discarded() || exit.output_cut) {
    if (exit.cause == ChildExit::Cause::stopped) {
      RunResult result = failed(config, exit_code_of_stop(), "stopped before it had a result");
      result.status = Status::partial;
      return result;
    }
    if (exit.output.empty() || late || exit.signal != 0) {
      return failed(config, code, "the run " + exit.describe());
    }
    return failed(config, code,
                  fmt::format("the run printed no JSON object but '{}', and {}",
                              excerpt(exit.output), exit.describe()));
  }
  try {
    RunResult result = result_from_json(json);
    const bool stopped = exit.cause == ChildExit::Cause::stopped;  // then the code is the signal's
    if (exit.signal != 0 || late || (!stopped && exit.code != result.exit_code)) {
      result.status = Status::failed;
      result.exit_code = code;
      result.reason = "the run " + end_of(exit, result);
    }
    return result;
  } catch (const Error& error) {
    return failed(config, code, error.what());
  }
}

RunResult run_in_child(const RunConfig& config, const FeederEntry& feeder,
                       const ChildRunOptions& options, const std::stop_token& stop) {
  const std::string started = utc_now();
  RunResult result;
  try {
    if (needs_producer(config, feeder)) {
      result = run_with_producer(config, feeder, options, stop);
    } else {
      ChildProcess run(run_command(config, options));
      result = result_of(run.wait(stop), config);
    }
  } catch (const Error& error) {
    result = failed(config, 6, error.what());
  }
  if (result.started.empty()) result.started = started;
  return result;
}

SweepRunner::Run runs_in_children(const ChildRunOptions& options) {
  return [&options](const RunConfig& config, const std::stop_token& stop) {
    const std::string name = parse_component(config.fake_location).name;
    return run_in_child(config, find_entry(feeder_table(), name), options, stop);
  };
}

}  // namespace penstock

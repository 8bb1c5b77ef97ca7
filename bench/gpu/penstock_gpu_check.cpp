// SPDX-License-Identifier: Apache-2.0
// penstock_gpu_check VERB [flags]: checks that a GPU computes correct results, and measures its
// highest rates. See README.md beside this file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>

#include "bench/gpu/check_report.h"
#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  void (*run)(const CheckSettings&, CheckReport&);
};

constexpr std::array<Verb, 6> kVerbs{{
    {"device", "properties of the device, as it reports them", check_device},
    {"ceilings", "rates of copies and matrix products", check_ceilings},
    {"kernels", "built-in kernels against the same on the host", check_kernels},
    {"convolutions", "the DNN library's convolutions against loops in double", check_convolutions},
    {"patterns", "convolutions fused with batch norms against loops in double", check_patterns},
    {"graphs", "the backend on small graphs against loops in double", check_small_graphs},
}};

void add_flags(CLI::App& verb, CheckSettings& settings) {
  verb.add_option("--driver", settings.driver, "gpu, or host: a GPU emulated on the host")
      ->check(CLI::IsMember({"gpu", "host"}))
      ->capture_default_str();
  verb.add_option(
      "--only", settings.only,
      "run only checks whose names contain one of these, separated by commas; default: all");
  verb.add_option("--seconds", settings.seconds,
                  "seconds after which no further check starts; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--engines", settings.engines, "engines of the DNN library to try for each graph")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("--seed", settings.seed, "seed of all random numbers")->capture_default_str();
  verb.add_option("--expect", settings.expected,
                  "for device: description to compare with, in JSON");
  CLI::Option* const json = verb.add_option("--json", settings.json, "file for the results");
  verb.add_flag("--resume", settings.resume,
                "keep the results in that file, and run the other checks")
      ->needs(json);
}

/// Exit codes: 0: all passed; 1: a check failed; 2: usage; 3: no GPU, or another thing that is
/// needed is absent; 8: the device is lost and some checks did not run; --resume runs them.
int run(const Verb& verb, const CheckSettings& settings) {
  CheckReport report(settings, verb.name);
  int ended = 0;
  try {
    verb.run(settings, report);
  } catch (const Unavailable& error) {
    report.add(verb.name, Verdict::skip, {}, error.what());
    ended = 3;
  } catch (const DeviceError& error) {
    report.add(verb.name, Verdict::note, {},
               fmt::format("no further check is run: {}", error.what()));
    ended = 8;
  }
  const int failed = report.finish();
  return ended == 8 || failed == 0 ? ended : failed;
}

int main_program(int count, char** words) {
  CLI::App program("Checks a GPU, or with --driver host this program itself.");
  program.require_subcommand(1);
  CheckSettings settings;
  for (const Verb& verb : kVerbs)
    add_flags(*program.add_subcommand(verb.name, verb.summary), settings);
  try {
    program.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  for (const Verb& verb : kVerbs) {
    if (program.got_subcommand(verb.name)) return run(verb, settings);
  }
  return 2;
}

}  // namespace
}  // namespace penstock::gpu

int main(int count, char** words) {
  try {
    return penstock::gpu::main_program(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock_gpu_check: {}\n", error.what());
    return 1;
  }
}

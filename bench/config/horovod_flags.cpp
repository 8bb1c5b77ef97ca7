// SPDX-License-Identifier: Apache-2.0
#include "bench/config/horovod_flags.h"

#include <memory>
#include <string>

#include "bench/config/config_values.h"

namespace penstock {
namespace {

/// The defaults of Horovod's scripts.
struct Iterations {
  std::int64_t count = 10, batches = 10;
};

}  // namespace

std::vector<Flag> horovod_flags(RunConfig& config) {
  const auto iterations = std::make_shared<Iterations>();
  const auto times = [&config, iterations](std::string name, std::string help,
                                           std::int64_t Iterations::*member) {
    return Flag{.name = name,
                .help = std::move(help),
                .fallback = "10",
                .set =
                    [&config, iterations, member, name](const std::string& text) {
                      RunConfig parsed;
                      set_count<&RunConfig::num_batches, 1>(parsed, name, text);
                      (*iterations).*member = parsed.num_batches;
                      config.num_batches = iterations->count * iterations->batches;
                    },
                .group = kOtherSystems};
  };
  std::vector<Flag> flags{
      times("num_iters", "iterations: --num-batches is this times --num-batches-per-iter",
            &Iterations::count),
      times("num_batches_per_iter", "steps per iteration, see --num-iters", &Iterations::batches),
      Flag{.name = "no_cuda",
           .help = "same as --device cpu",
           .fallback = "false",
           .boolean = true,
           .set =
               [&config](const std::string& text) {
                 if (parse_flag(text, "--no-cuda")) config.device = "cpu";
               },
           .group = kOtherSystems}};
  return flags;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/batch_traits.h"

#include <fmt/format.h>

#include "bench/analysis/steady_run.h"
#include "bench/isolate/isolation.h"
#include "bench/isolate/loader_waits.h"
#include "bench/record/run_result.h"

namespace penstock::isolate {
namespace {

constexpr double kManyArrays = 32, kMuchPadding = 20, kLargeMb = 16;
constexpr std::string_view kPadding = "loader_padding_percent: ";

const analysis::StageFinding* asking_stage(const Isolation& found) {
  return analysis::find_stage(found.diagnosis, StageRole::asks);
}

std::string arrays_sentence(const Isolation& found) {
  const double ms =
      asking_stage(found)->wall_us_per_image * images_per_step(found.measurement.coupled()) / 1e3;
  return fmt::format(
      "A batch holds {:.0f} arrays, and taking them from a worker takes {:.0f} ms of the process "
      "that asks: each of them is a message, a file descriptor and a memory map of its own.",
      found.traits.arrays, ms);
}

std::string padding_sentence(const BatchTraits& traits) {
  return fmt::format(
      "{:.0f} % of the positions of '{}' are padding, which is loaded, copied and computed for "
      "nothing: batches of samples of like length (a sampler that sorts by length) would be up to "
      "{:.1f} times smaller.",
      traits.padding_percent, traits.padded, 100 / (100 - traits.padding_percent));
}

std::string pickling_sentence(const Isolation& found) {
  const BatchTraits& traits = found.traits;
  const std::int32_t workers = found.waits.workers;
  return fmt::format(
      "The data set is pickled for each worker: {:.0f} MB, which takes {:.0f} ms to write, about "
      "as "
      "long to read, and as much memory in {}{}; keep the samples in a file that the data set "
      "opens, or in a memory map or shared array.",
      traits.pickled_mb, traits.pickling_ms,
      workers > 0 ? fmt::format("each of {} worker{}", workers, workers == 1 ? "" : "s")
                  : std::string("each"),
      found.waits.persistent == 0 ? ", again in each epoch" : "");
}

}  // namespace

BatchTraits find_traits(const Row& coupled) {
  const auto fact = [&](const char* name) { return mean_fact(coupled, name).value_or(0); };
  BatchTraits traits{.arrays = fact("loader_arrays_per_batch"),
                     .pickled_mb = fact("loader_pickled_bytes_per_worker") / 1e6,
                     .pickling_ms = fact("loader_pickling_ms_per_worker")};
  for (const RunResult* run : analysis::usable_runs(coupled)) {
    for (const auto& [name, value] : run->facts) {
      if (!name.starts_with(kPadding)) continue;
      traits.padded = name.substr(kPadding.size());
      traits.padding_percent = mean_fact(coupled, name).value_or(0);
      return traits;
    }
  }
  return traits;
}

bool unpacks_many_arrays(const Isolation& found) {
  const auto& bottleneck = found.diagnosis.bottleneck;
  return found.traits.arrays >= kManyArrays && found.waits.workers > 0 && bottleneck &&
         &found.diagnosis.stages[*bottleneck] == asking_stage(found);
}

std::vector<std::string> trait_sentences(const Isolation& found) {
  std::vector<std::string> sentences;
  if (unpacks_many_arrays(found)) sentences.push_back(arrays_sentence(found));
  if (found.traits.padding_percent >= kMuchPadding) {
    sentences.push_back(padding_sentence(found.traits));
  }
  if (found.traits.pickled_mb >= kLargeMb) sentences.push_back(pickling_sentence(found));
  return sentences;
}

}  // namespace penstock::isolate

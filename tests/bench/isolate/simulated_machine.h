// SPDX-License-Identifier: Apache-2.0
// A trainer and a feeder with known speeds, whose runs take no time. The costs and causes that
// isolate must find are therefore known.
#pragma once

#include <algorithm>
#include <cmath>

#include "bench/run/runner.h"
#include "dataflow/random.h"

namespace penstock {

/// All times are in ms per step of `images` images.
struct SimulatedMachine {
  std::int64_t images = 64;
  double device_ms = 10;        ///< per step, undisturbed
  double feeder_ms = 40;        ///< with one thread; more threads share it
  double serial_share = 0;      ///< of feeder_ms; no other thread can share it
  double read_share = 0.1;      ///< of feeder_ms, spent reading
  double copy_exposed_ms = 0;   ///< with a feeder
  double slower_ms = 0;         ///< of the step itself, with a feeder
  double late_ms = 0;           ///< enqueued late, with a feeder
  double noise = 0;             ///< of single steps: +- this share
  double drift = 0;             ///< between blocks: the same factor for all runs of a block
  double overhead_s = 0.3;      ///< of a run, besides its steps
  std::int64_t fast_steps = 0;  ///< steps fed by batches prepared before the window
  bool receives = false;        ///< its batches come from an external producer

  double feed_ms(const RunConfig& config) const {
    if (config.fake_location == "gpu") return 0;
    const double threads = std::max(1, config.feeder_threads);
    return feeder_ms * (serial_share + (1 - serial_share) / threads);
  }

  /// The result of a run of `config`.
  RunResult run(const RunConfig& config) const {
    const bool trains = config.model != "null", fed = config.fake_location != "gpu";
    const double busy = trains ? device_ms + (fed ? slower_ms : 0) : 0;
    const double copy = fed && trains ? copy_exposed_ms : 0, late = fed && trains ? late_ms : 0;
    const double feed = feed_ms(config);
    Random random(config.seed, static_cast<std::uint64_t>(config.feeder_threads) + (fed ? 100 : 0),
                  trains ? 1 : 2);
    const double block = 1 + drift * std::sin(static_cast<double>(config.seed));
    RunResult result;
    result.config = config;
    result.images_per_step = images;
    double sum = 0;
    for (std::int64_t step = 0; step < config.num_batches; ++step) {
      const double factor = block * (1 + noise * random.uniform(-1, 1));
      const double own = busy + copy + late;
      const double starved = step < fast_steps ? 0 : std::max(0.0, feed - own);
      result.step_ms.push_back(factor * (own + starved));
      result.starved_ms.push_back(factor * starved);
      result.copy_exposed_ms.push_back(factor * copy);
      result.late_ms.push_back(factor * late);
      result.device_idle_ms.push_back(factor * (starved + copy + late));
      sum += result.step_ms.back();
    }
    result.window_s = sum / 1e3;
    const auto steps = static_cast<double>(config.num_batches);
    result.img_per_s = static_cast<double>(images) * steps / result.window_s;
    result.sustained_img_per_s =
        std::min(result.img_per_s, feed > 0 ? 1e3 * static_cast<double>(images) / feed : 1e18);
    result.reserve_start = static_cast<double>(fast_steps);
    add_stages(config, feed, result);
    return result;
  }

  double wall_s(const RunResult& result) const {
    return overhead_s +
           result.window_s * (1 + static_cast<double>(result.config.num_warmup_batches) /
                                      static_cast<double>(result.step_ms.size()));
  }

 private:
  void add_stages(const RunConfig& config, double feed, RunResult& result) const {
    if (config.fake_location == "gpu") return;
    const auto steps = static_cast<double>(config.num_batches);
    const double window = result.window_s;
    const std::int32_t threads = receives ? 1 : std::max(1, config.feeder_threads);
    StageUse first, second;
    first.name = receives ? "receive" : "read";
    second.name = receives ? "unpack" : "decode";
    first.workers = second.workers = receives ? "receiver" : "decode threads";
    first.role = receives ? StageRole::receives : StageRole::reads_storage;
    second.role = receives ? StageRole::unpacks : StageRole::decodes;
    first.threads = second.threads = threads;
    first.images = second.images = images * config.num_batches;
    const double work_s = receives ? 0.1 * window : std::min(feed * steps / 1e3, window) * threads;
    first.wall_s = first.cpu_s = read_share * work_s;
    second.wall_s = second.cpu_s = (1 - read_share) * work_s;
    const double idle_s = std::max(0.0, threads * window - work_s);
    const bool starves = feed * steps / 1e3 > 0.99 * window;
    (receives && starves ? first.wait_in_s : second.wait_out_s) = idle_s;
    StageUse copy;
    copy.name = "copy";
    copy.workers = "stager";
    copy.role = StageRole::copies;
    copy.images = first.images;
    copy.wall_s = copy.cpu_s = 0.001 * steps;
    copy.wait_in_s = std::max(0.0, window - copy.wall_s);
    result.stages = {first, second, copy};
    result.instrumentation_s = 1e-4 * work_s;
    QueueUse queue;
    queue.name = "host ring";
    queue.slots = config.prefetch;
    queue.empty_percent = starves ? 99 : 0;
    queue.full_percent = starves ? 0 : 99;
    result.queues = {queue};
  }
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Writes pages with made-up numbers, to look at them: page_samples FOLDER.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "bench/isolate/isolation_report.h"
#include "bench/report/pages/sweep_page.h"
#include "tests/bench/isolate/isolation_fixture.h"

namespace penstock {
namespace {

/// Feeders of every verdict, two trainers, and rows that did not run.
SweepResult make_sample_sweep() {
  SweepResult sweep;
  sweep.environment = make_environment();
  sweep.command = "penstock sweep --fake-location gpu,host,cpu,queue,zmq-consume --num-gpus 2";
  sweep.seed = 1234;
  sweep.repetitions = 5;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.warnings = {"the machine is a virtual one: others may use its processors"};
  sweep.rows = {make_long_row("gpu", 0, true), make_long_row("host", 0.02),
                make_long_row("cpu", 0.1), make_long_row("queue", 27.55),
                make_long_row("zmq-consume", 4.2)};
  sweep.rows[3].repetitions[0].result.notes = {"'data/train' has 8 classes and the model 1000"};
  sweep.rows[4].repetitions[0].result.notes = {"'data/train' has 8 classes and the model 1000"};
  Row absent = make_row("lmdb");
  absent.unavailable = "this program was built without it; install liblmdb-dev and build again";
  sweep.rows.push_back(absent);
  for (Row& row : sweep.rows) {
    row.config.num_gpus = 2;
    for (Repetition& repetition : row.repetitions) {
      RunResult& result = repetition.result;
      result.facts["emulated_img_per_s"] = 400 / 0.224;
      if (row.config.fake_location != "queue") result.stages = {result.stages.back()};
    }
  }
  summarise(sweep);
  return sweep;
}

void write(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  isolate::Isolation isolation = make_isolation();
  std::ofstream ladder(folder / "isolation.html");
  isolate::write_isolation_page(isolation, ladder);
  isolate::write_isolation_figures(isolation, folder / "figures");
  isolation.ladder.clear();
  isolation.predictions.cores_per_device->reachable = false;
  isolation.predictions.cores_per_device->peak_img_per_s = {2900, 2500, 3300, 5};
  std::ofstream plain(folder / "isolation-plain.html");
  isolate::write_isolation_page(isolation, plain);
  std::ofstream sweep(folder / "sweep.html");
  report::write_sweep_page(make_sample_sweep(), {}, sweep);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: page_samples FOLDER\n";
    return 2;
  }
  penstock::write(argv[1]);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Runs `penstock run` with Python loaders, as a user does.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/child_process.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"

namespace penstock {
namespace {

nlohmann::json result_of(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {PENSTOCK_PROGRAM, "run", "--json", "--device=emulated:img_per_s=1e5",
                               "--num-warmup-batches=2", "--num-batches=20"});
  ChildProcess child({.arguments = std::move(flags), .timeout = std::chrono::minutes(1)});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 0) << exit.describe();
  return exit.code == 0 ? nlohmann::json::parse(exit.output) : nlohmann::json::object();
}

TEST(PythonLoaderProgram, EveryPythonFeederFeedsARun) {
  for (const std::string name : {"python", "python-queue", "python-dataset"}) {
    SCOPED_TRACE(name);
    const nlohmann::json result =
        result_of({"--fake-location=" + name, "--batch-size=8", "--image-size=32"});
    EXPECT_EQ(result.at("step_ms").size(), 20U);
    EXPECT_GE(result.at("counters").at("images_received"), 20 * 8);
    EXPECT_EQ(result.at("stages")[0].at("name"), "get next");
    EXPECT_EQ(result.at("facts").at("child_processes"), 1);
    EXPECT_FALSE(result.at("facts").contains("worker_memory_bytes"));
  }
}

/// A worker process of the loader has touched 64 MiB.
TEST(PythonLoaderProgram, TheMemoryOfWorkersIsInTheResult) {
  const TempFolder folder;
  write_text(folder / "loader.py", R"(
import os, time

def make():
    mine, childs = os.pipe()
    loader = os.getpid()
    if os.fork() == 0:
        held = bytearray(b"x" * (64 << 20))
        os.write(childs, b"1")
        while os.getppid() == loader:
            time.sleep(0.1)
        os._exit(0)
    os.read(mine, 1)
    while True:
        yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
)");
  const nlohmann::json facts =
      result_of({"--model=null", "--loader=" + (folder / "loader.py").string() + ":make"})
          .at("facts");
  EXPECT_EQ(facts.at("child_processes"), 2);
  EXPECT_EQ(facts.at("worker_processes"), 1);
  const double worker = facts.at("worker_memory_bytes"), all = facts.at("child_memory_bytes");
  EXPECT_GE(worker, 64 << 20);
  EXPECT_LT(worker, 160 << 20);
  EXPECT_GT(all, worker);
  EXPECT_LT(facts.at("worker_growth_bytes_per_min").get<double>(), 1e9) << "it holds what it has";
}

}  // namespace
}  // namespace penstock

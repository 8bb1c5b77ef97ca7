// SPDX-License-Identifier: Apache-2.0
// Runs `penstock run` with Python loaders, as a user does.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

nlohmann::json result_of(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {PENSTOCK_PROGRAM, "run", "--json", "--device=emulated:img_per_s=1e5",
                               "--num-warmup-batches=2", "--num-batches=20"});
  const ChildExit exit = penstock::exit_of(std::move(flags), std::chrono::minutes(1));
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
    EXPECT_EQ(result.at("stages")[0].at("name"), "next(loader)");
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
  EXPECT_FALSE(facts.contains("worker_growth_bytes_per_min")) << "of a window of milliseconds";
}

/// A loader that appends what its environment says of its rank to a file.
std::string loader_that_tells(const TempFolder& folder) {
  write_text(folder / "loader.py", R"(
import os

def make():
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
    with open(os.path.join(os.path.dirname(__file__), "told"), "a") as file:
        file.write(" ".join(os.environ[name] for name in names) + "\n")
    while True:
        yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
)");
  return "--loader=" + (folder / "loader.py").string() + ":make";
}

TEST(PythonLoaderProgram, EachDeviceHasALoaderThatKnowsItsRank) {
  const TempFolder folder;
  const nlohmann::json result =
      result_of({"--model=null", "--num-gpus=3", loader_that_tells(folder)});
  const std::string told = read_text(folder / "told");
  for (const char* const rank : {"0 3 0 3\n", "1 3 1 3\n", "2 3 2 3\n"}) {
    EXPECT_NE(told.find(rank), told.npos) << told;
  }
  EXPECT_EQ(std::ranges::count(told, '\n'), 3);
  EXPECT_EQ(result.at("config").at("loader_per"), "device");
  EXPECT_EQ(result.at("facts").at("child_processes"), 3);
  std::vector<std::string> queues;
  for (const nlohmann::json& queue : result.at("queues")) queues.push_back(queue.at("name"));
  EXPECT_EQ(queues, (std::vector<std::string>{"host ring 0", "host ring 1", "host ring 2",
                                              "device ring 0", "device ring 1", "device ring 2"}));
  // Each device trains what its own loader yields, and none is more than its ring ahead.
  EXPECT_GE(result.at("counters").at("images_received"), 3 * 20 * 8);
  EXPECT_LE(result.at("counters").at("images_received"), 3 * (20 + 2 + 3) * 8);
}

TEST(PythonLoaderProgram, LoadersOfAllDevicesStartTogether) {
  const TempFolder folder;
  write_text(folder / "loader.py", R"(
import os, pathlib, time

def meet(folder):
    "Returns when three loaders have begun."
    (pathlib.Path(folder) / ("begun" + os.environ["RANK"])).touch()
    while len(list(pathlib.Path(folder).glob("begun*"))) < 3:
        time.sleep(0.01)
    while True:
        yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
)");
  const std::string file = (folder / "loader.py").string();
  for (const char* const shape : {"", ",batch=8x4x4x3"}) {
    const nlohmann::json result = result_of({"--model=null", "--num-gpus=3",
                                             "--fake-location=python:loader='" + file +
                                                 ":meet',args='folder=" + folder.path().string() +
                                                 "',start_timeout=60s" + shape});
    EXPECT_EQ(result.at("facts").at("child_processes"), 3);
    for (const char* const begun : {"begun0", "begun1", "begun2"}) {
      std::filesystem::remove(folder / begun);
    }
  }
}

TEST(PythonLoaderProgram, ALoaderPerProcessFeedsAllItsDevices) {
  const TempFolder folder;
  const nlohmann::json result = result_of(
      {"--model=null", "--num-gpus=3", "--loader-per=process", loader_that_tells(folder)});
  EXPECT_EQ(read_text(folder / "told"), "0 1 0 1\n");
  EXPECT_EQ(result.at("config").at("loader_per"), "process");
  EXPECT_EQ(result.at("queues")[0].at("name"), "host ring");
}

TEST(PythonLoaderProgram, TheHeaderOfTheReferenceIsForThoseWhoAskForIt) {
  const auto output_of = [](const std::string& more) {
    ChildProcess child({.arguments = {PENSTOCK_PROGRAM, "run", "--loader=penstock:constant",
                                      "--loader-args=images=8,height=32,width=32", more,
                                      "--device=emulated:img_per_s=1e5", "--num-batches=5"},
                        .timeout = std::chrono::minutes(1)});
    return child.wait().output;
  };
  const std::string plain = output_of("--num-warmup-batches=2");
  EXPECT_TRUE(plain.starts_with("Loader:      penstock:constant\nBatch size:  8 per device\n"))
      << plain;
  EXPECT_EQ(plain.find("Initializing graph"), plain.npos);
  EXPECT_NE(plain.find("\ntotal images/sec: "), plain.npos);
  EXPECT_TRUE(output_of("--like=tf_cnn_benchmarks").starts_with("Model:       trivial\nDataset: "));
}

TEST(PythonLoaderProgram, LoadersTogetherAreComparedWithTheCores) {
  const TempFolder folder;
  write_text(folder / "loader.py", R"(
class Loader:
    num_workers = 1000

    def __iter__(self):
        while True:
            yield memoryview(bytes(8 * 4 * 4 * 3)).cast("B", (8, 4, 4, 3)), list(range(8))
)");
  const std::string loader = "--loader=" + (folder / "loader.py").string() + ":Loader";
  const std::string notes = result_of({"--model=null", "--num-gpus=2", loader}).at("notes").dump();
  EXPECT_NE(notes.find("2 loaders with 1000 workers each share "), notes.npos) << notes;
}

/// A batch of 8 samples each 20 ms, whose lengths vary.
std::string paced_tokens(const TempFolder& folder) {
  write_text(folder / "tokens.py", R"(
import array, time

def make():
    for number in range(1000):
        time.sleep(.02)
        length = 4 + number % 3
        yield {"ids": memoryview(array.array("i", [1] * (8 * length))).cast("B").cast("i", (8, length))}
)");
  return "--loader=" + (folder / "tokens.py").string() + ":make";
}

ChildExit exit_of(std::vector<std::string> words) {
  words.insert(words.begin(), PENSTOCK_PROGRAM);
  return penstock::exit_of(std::move(words), std::chrono::minutes(1));
}

/// A run with that loader. Its record is run.json in the folder.
ChildExit timed_run(const TempFolder& folder, const std::string& loader,
                    std::initializer_list<std::string> more) {
  std::vector<std::string> words{"run", loader, "--device=emulated:step_time=1ms",
                                 "--num-warmup-batches=2",
                                 "--out=" + (folder / "run.json").string()};
  words.insert(words.end(), more);
  ChildExit exit = exit_of(std::move(words));
  EXPECT_EQ(exit.code, 0) << exit.describe();
  return exit;
}

TEST(PythonLoaderProgram, BatchesThatAreNoImagesHaveSamples) {
  const TempFolder folder;
  const std::string loader = paced_tokens(folder), out = "--out=" + (folder / "out").string();
  const ChildExit exit = timed_run(folder, loader, {"--num-batches=20"});
  EXPECT_NE(exit.output.find("total samples/sec: "), std::string::npos) << exit.output;
  const nlohmann::json result = nlohmann::json::parse(read_text(folder / "run.json"));
  EXPECT_EQ(result.at("unit"), "samples");
  EXPECT_EQ(result.at("images_per_step"), 8);
  EXPECT_LT(result.at("rate"), 8 * 20 / (19 * 0.02) + 1) << "one batch may lie ready";
  const ChildExit isolated =
      exit_of({"isolate", loader, "--device=emulated:samples_per_s=8000", "--budget=8s", out});
  EXPECT_TRUE(isolated.code == 0 || isolated.code == 7) << isolated.describe();
  for (const std::string& text :
       {exit.output, exit.last_words, isolated.output, isolated.last_words,
        read_text(folder / "out/report.html"), read_text(folder / "out/results.md")}) {
    EXPECT_EQ(text.find("img/s"), std::string::npos) << text;
    EXPECT_EQ(text.find("images/sec"), std::string::npos) << text;
  }
  EXPECT_NE(isolated.output.find(" samples/s"), std::string::npos) << isolated.output;
}

TEST(PythonLoaderProgram, TokensAreCountedAsTheLoaderMakesThem) {
  const TempFolder folder;
  write_text(folder / "texts.py",
             "import array, itertools\n"
             "def make():\n"
             "    for length in itertools.cycle((10, 20, 60)):\n"
             "        yield {'ids': memoryview(array.array('i', [7] * length)), 'name': 'text'}\n");
  const ChildExit exit = timed_run(folder, "--loader=" + (folder / "texts.py").string() + ":make",
                                   {"--count=ids", "--num-batches=30"});
  EXPECT_NE(exit.output.find("total tokens/sec: "), std::string::npos) << exit.output;
  EXPECT_EQ(exit.output.find("images/sec"), std::string::npos) << exit.output;
  const nlohmann::json result = nlohmann::json::parse(read_text(folder / "run.json"));
  EXPECT_EQ(result.at("unit"), "tokens");
  EXPECT_EQ(result.at("images_per_step"), 30) << "the mean, not the first batch";
  const double counted = result.at("rate").get<double>() * result.at("window_s").get<double>();
  EXPECT_NEAR(counted, 30 * 30, 1e-6);
  EXPECT_TRUE(result.at("samples_per_s").is_null()) << "one sequence, of how many samples?";
}

TEST(PythonLoaderProgram, SamplesAreKnownBesideTokens) {
  const TempFolder folder;
  write_text(folder / "texts.py",
             "import array\n"
             "def make():\n"
             "    while True:\n"
             "        yield {'ids': memoryview(bytes(60)).cast('B', (4, 15)),\n"
             "               'label': memoryview(array.array('i', range(4)))}\n");
  timed_run(folder, "--loader=" + (folder / "texts.py").string() + ":make",
            {"--count=tokens=ids", "--num-batches=30"});
  const nlohmann::json result = nlohmann::json::parse(read_text(folder / "run.json"));
  EXPECT_EQ(result.at("facts").at("loader_counted_per_sample"), 15);
  EXPECT_NEAR(result.at("samples_per_s").get<double>(), result.at("rate").get<double>() / 15, 1e-6);
}

TEST(PythonLoaderProgram, WhatTrainsImagesAloneRefusesOtherBatches) {
  const TempFolder folder;
  const std::string loader = paced_tokens(folder);
  const auto refusal = [&](const std::string& flag) {
    const ChildExit exit = exit_of({"run", loader, "--num-batches=5", flag});
    EXPECT_EQ(exit.code, 2) << exit.describe();
    return exit.last_words;
  };
  EXPECT_NE(refusal("--model=resnet18").find("8 samples a batch: dict of ids int32[8,4]"),
            std::string::npos);
  EXPECT_NE(refusal("--device=emulated").find("emulated:step_time=20ms"), std::string::npos);
  EXPECT_NE(refusal("--device=cpu").find("--model null"), std::string::npos);
  const ChildExit look = exit_of({"look", loader});
  EXPECT_EQ(look.code, 2) << look.output;
  EXPECT_NE(look.last_words.find("hold no images"), std::string::npos) << look.last_words;
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Runs `mpirun penstock run` as a user does: real processes, and what happens to all of them if one
// fails.
#include <nlohmann/json.hpp>

#include "tests/support/coloured_images.h"
#include "tests/support/mpirun_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/checkpoint.h"

namespace penstock {
namespace {

class Mpirun : public MpirunFixture {
 protected:
  /// The command of a rank: a short training without computation, marked so that it can be found.
  Words rank(const Words& more) const {
    return joined({PENSTOCK_PROGRAM, "run", "--variable-update=horovod", "--fake-location=host",
                   "--model=trivial", "--batch-size=4", "--num-warmup-batches=2",
                   "--cache-dir=" + folder_.path().native()},
                  more);
  }
  static Words mpirun(int ranks, const Words& program) {
    return joined({"mpirun", "-np", std::to_string(ranks)}, program);
  }
};

TEST_F(Mpirun, ThreeRanksGiveOneResult) {
  const ChildExit exit =
      exit_of(3, rank({"--device=emulated:img_per_s=400", "--num-batches=30", "--json"}));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);
  EXPECT_EQ(result["config"]["num_processes"], 3);
  EXPECT_EQ(result["images_per_step"], 12);
  ASSERT_EQ(result["ranks"].size(), 3U);
  EXPECT_EQ(result["step_ms"].size(), 30U);
  // Ranks step together, each at no more than 400 images per second.
  const double rate = result["img_per_s"];
  EXPECT_GT(rate, 0);
  EXPECT_LT(rate, 1201);
  double images = 0;
  for (const auto& rank : result["ranks"]) {
    images += rank["img_per_s"].get<double>() * rank["window_s"].get<double>();
  }
  EXPECT_NEAR(images, 360, 1e-6);
}

/// The loader of rank 0 gives a batch each 10 ms and that of rank 1 each 80 ms, so rank 0 has ended
/// long before rank 1: it would have to be eight times slower than asked to be as slow.
TEST_F(Mpirun, RanksThatDoNotWaitForEachOtherCountWhileAllTrain) {
  const std::string loader = folder_ / "paced.py";
  std::ofstream(loader)
      << "import os, time\n"
         "def make():\n"
         "    pixels = memoryview(bytearray(4*8*8*3)).cast('B', [4, 8, 8, 3])\n"
         "    while True:\n"
         "        time.sleep(.08 if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else .01)\n"
         "        yield pixels, [0, 1, 2, 3]\n";
  for (const std::string update : {"replicated", "async-sgd", "independent"}) {
    SCOPED_TRACE(update);
    const ChildExit exit = exit_of(
        2, {PENSTOCK_PROGRAM, "run", "--variable-update=" + update, "--loader=" + loader + ":make",
            "--model=trivial", "--num-warmup-batches=2", "--num-batches=20", "--json",
            "--device=emulated:img_per_s=4000", "--cache-dir=" + folder_.path().native()});
    ASSERT_EQ(exit.code, 0) << exit.last_words;
    const nlohmann::json result = nlohmann::json::parse(exit.output);
    ASSERT_EQ(result["ranks"].size(), 2U);
    const double slow_s = result["ranks"][1]["window_s"], window_s = result["window_s"];
    const double twice_slowest = 2 * result["ranks"][1]["img_per_s"].get<double>();
    const auto compute = std::ranges::find(result["parts"], "compute",
                                           [](const nlohmann::json& part) { return part["name"]; });
    ASSERT_NE(compute, result["parts"].end());
    EXPECT_LT((*compute)["p50_ms"].get<double>(), 40) << "a step of 1 ms, and no batch";
    if (update == "replicated") {
      EXPECT_FALSE(result["facts"].contains("steps_outside_window"));
      EXPECT_NEAR(window_s, slow_s, 0.1 * slow_s);
      EXPECT_NEAR(result["img_per_s"].get<double>(), twice_slowest, 0.1 * twice_slowest);
      continue;
    }
    EXPECT_GE(result["facts"]["steps_outside_window"].get<double>(), 1);
    EXPECT_LT(window_s, slow_s);
    EXPECT_GT(result["img_per_s"].get<double>(), 1.1 * twice_slowest);
    EXPECT_TRUE(says(result["notes"].dump(), "ranks do not wait for each other"));
  }
}

/// Rank 0 alone writes a timeline, whose steps are a leg of their own.
TEST_F(Mpirun, ATimelineOfAFewStepsDelaysNoRank) {
  const ChildExit exit = exit_of(2, rank({"--device=emulated:img_per_s=400", "--num-batches=20",
                                          "--trace-file=" + (folder_ / "trace.json").native(),
                                          "--trace-steps=5", "--timeout=10s", "--json"}));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(nlohmann::json::parse(exit.output)["step_ms"].size(), 20U);
}

TEST_F(Mpirun, EachRankHasALoaderThatKnowsItsRank) {
  const TempFolder folder;
  write_text(folder / "loader.py", R"(
import os

def make():
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
    told = [os.environ[name] for name in names]
    with open(os.path.join(os.path.dirname(__file__), "told" + told[0]), "w") as file:
        file.write(" ".join(told))
    while True:
        yield memoryview(bytes(4 * 8 * 8 * 3)).cast("B", (4, 8, 8, 3)), list(range(4))
)");
  const ChildExit exit =
      exit_of(2, {PENSTOCK_PROGRAM, "run", "--num-gpus=2", "--device=emulated:img_per_s=4000",
                  "--model=null", "--num-batches=10", "--num-warmup-batches=2",
                  "--loader=" + (folder / "loader.py").native() + ":make"});
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  for (const std::string rank : {"0", "1", "2", "3"}) {
    EXPECT_EQ(read_text(folder / ("told" + rank)), rank + " 4 " + rank + " 4");
  }
}

TEST_F(Mpirun, RanksTogetherSeeEverySampleOnce) {
  const TempFolder data;
  write_coloured_images(data, "train", 4, 5);
  const std::string seen = (data / "seen.json").native();
  const ChildExit exit = exit_of(
      2,
      rank({"--device=emulated:img_per_s=400", "--fake-location=queue:crop=full,coverage=" + seen,
            "--data-dir=" + (data / "train").native(), "--classes=4", "--num-batches=10"}));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const ChildExit coverage =
      penstock::exit_of({PENSTOCK_PROGRAM, "dataset", "coverage", seen + ".0", seen + ".1"});
  EXPECT_EQ(coverage.code, 0) << coverage.output;
  EXPECT_TRUE(says(coverage.output, "each of the 20 samples was seen exactly once"));
  EXPECT_TRUE(says(coverage.output, "      1         20          0          0\n"));
}

TEST_F(Mpirun, PrintsOneTableAndALineForEachRank) {
  const ChildExit exit = exit_of(2, rank({"--num-batches=5"}));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const std::size_t total = exit.output.find("total images/sec: ");
  ASSERT_NE(total, std::string::npos) << exit.output;
  EXPECT_EQ(exit.output.find("total images/sec: ", total + 1), std::string::npos) << exit.output;
  EXPECT_TRUE(says(exit.output, "8 global"));
  EXPECT_TRUE(says(exit.output, "\nrank 1 on "));
}

TEST_F(Mpirun, RanksWithOtherFlagsAreNamedBeforeAnythingIsMeasured) {
  if (launcher_is_open_mpi_5()) GTEST_SKIP() << "mpirun of Open MPI 5.0 crashes if it gets a ':'";
  start(joined(joined(mpirun(1, rank_of(rank({"--num-batches=5"}))), {":", "-np", "1"}),
               rank_of(rank({"--num-batches=6"}))));
  const bool returned = await_end();
  EXPECT_TRUE(!returned || exit_.code == 2) << exit_.code;
  EXPECT_FALSE(lines_with("--num-batches=6").empty());
  EXPECT_TRUE(lines_with("was lost").empty());
}

TEST_F(Mpirun, ARankThatFailsEndsAllWithItsOwnReason) {
  start(mpirun(2, rank_of(rank({"--num-batches=5", "--fake-location=queue",
                                "--data-dir=" + (folder_.path() / "nothing").native()}))));
  await_end();
  EXPECT_FALSE(lines_with("nothing").empty());
  EXPECT_TRUE(lines_with("was lost").empty());
}

TEST_F(Mpirun, AnInterruptionSavesWhatWasMeasured) {
  const std::string checkpoints = folder_ / "checkpoints";
  start(mpirun(
      2, rank_of(training({"--batch-size=4", "--num-batches=100000", "--train-dir=" + checkpoints,
                           "--device=emulated:img_per_s=40"}))));
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  ASSERT_EQ(kill(child_->pid(), SIGINT), 0);
  await_end();
  const nlohmann::json saved = nlohmann::json::parse(content_of(result()), nullptr, false);
  ASSERT_FALSE(saved.is_discarded()) << content_of(left_by(0, "err"));
  EXPECT_EQ(saved["status"], "partial");
  EXPECT_GE(saved["step_ms"].size(), 5U);
  EXPECT_TRUE(lines_with("was lost").empty());
  const std::vector<std::int64_t> steps = list_checkpoints(checkpoints);
  EXPECT_EQ(steps.size() + lines_with("its last step was not saved").size(), 1U);
  for (const std::int64_t step : steps) EXPECT_EQ(step, 2 + std::ssize(saved["step_ms"]));
}

TEST_F(Mpirun, StepsStayWhereAllAreKilledAtOnce) {
  start(mpirun(2, rank_of(training({"--batch-size=4", "--num-batches=100000",
                                    "--device=emulated:img_per_s=40"}))));
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  for (int tries = 0; tries < 3; ++tries) {
    for (const auto& [rank, process] : ranks())
      kill(process, SIGSTOP);  // no rank sees another one end
  }
  for (const auto& [rank, process] : ranks()) kill(process, SIGKILL);
  await_end();
  EXPECT_FALSE(std::filesystem::exists(result()));
  const ChildExit shown =
      penstock::exit_of({PENSTOCK_PROGRAM, "report", steps().native(), "--format", "json"});
  ASSERT_EQ(shown.code, 0) << shown.last_words;
  const nlohmann::json sweep = nlohmann::json::parse(shown.output);
  EXPECT_EQ(sweep["runs"][0]["status"], "partial");
  EXPECT_GE(sweep["runs"][0]["repetitions"][0]["step_ms"].size(), 5U);
  const ChildExit hint = penstock::exit_of({PENSTOCK_PROGRAM, "report", result().native()});
  EXPECT_EQ(hint.code, 2);
  EXPECT_TRUE(says(hint.last_words, steps().native()));
}

}  // namespace
}  // namespace penstock

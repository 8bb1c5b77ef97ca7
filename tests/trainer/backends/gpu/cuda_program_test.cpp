// SPDX-License-Identifier: Apache-2.0
// Tests the program on a GPU of the fake CUDA libraries (tests/support/gpu/fake): its messages, its
// exit code, and its results when a GPU fails.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CudaProgram : public testing::Test {
 protected:
  ChildExit run(const std::string& settings, const std::vector<std::string>& words = {},
                const std::string& libraries = PENSTOCK_FAKE_FOLDER) const {
    std::vector<std::string> all =
        joined({"/usr/bin/env", "LD_LIBRARY_PATH=" + libraries + ":" PENSTOCK_FAKE_FOLDER,
                "PENSTOCK_FAKE_CUDA=" + settings, PENSTOCK_PROGRAM, "run", "--fake-location=gpu",
                "--device=gpu", "--model=tiny_cnn", "--batch-size=2", "--num-batches=30",
                "--num-warmup-batches=1", "--cache-dir=" + folder_.path().native(),
                "--out=" + results_.native()},
               words);
    return penstock::exit_of(std::move(all), 100s);
  }
  nlohmann::json results() const { return nlohmann::json::parse(read_text(results_)); }

  TempFolder folder_;
  const std::filesystem::path results_ = folder_ / "results.json";
};

testing::AssertionResult ended(const ChildExit& exit, int code, std::string_view saying) {
  if (exit.signal == 0 && exit.code == code && exit.last_words.find(saying) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "expected exit code " << code << " and '" << saying << "', got: " << exit.describe();
}

TEST_F(CudaProgram, TrainsOnAGpu) {
  EXPECT_TRUE(ended(run(""), 0, ""));
  EXPECT_EQ(results().at("losses").size(), 30U);
}

TEST_F(CudaProgram, LeavesStandardStreamsOpenForLibrariesThatPrintAtExit) {
  ASSERT_EQ(setenv("PENSTOCK_FAKE_FAREWELL", "yes", 1), 0);
  const ChildExit exit = run("");
  unsetenv("PENSTOCK_FAKE_FAREWELL");
  EXPECT_TRUE(ended(exit, 0, "fake CUDA: farewell"));
}

TEST_F(CudaProgram, TrainsOnTwoGpus) {
  const std::vector<std::string> two{"--num-gpus=2", "--device=gpu:exchange=copies"};
  EXPECT_TRUE(ended(run("devices=2,timing=shuffled", two), 0, ""));
  EXPECT_EQ(results().at("losses").size(), 30U);
}

TEST_F(CudaProgram, WeightsInHostMemoryOrOnServersTrainAsOnTheGpus) {
  const auto losses = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--num-gpus=2", "--device=gpu:exchange=copies"});
    EXPECT_TRUE(ended(run("devices=2,timing=shuffled", words), 0, ""));
    return results().at("losses").get<std::vector<double>>();
  };
  const auto served = [&](const std::string& update) {
    const ReservedPort port;
    const std::string hosts = "--ps-hosts=127.0.0.1:" + port.text();
    const std::string workers = "--worker-hosts=127.0.0.1:1";
    ChildProcess server(
        {.arguments = {PENSTOCK_PROGRAM, "run", "--job-name=ps", hosts, workers}, .timeout = 100s});
    std::vector<double> result = losses({"--job-name=worker", hosts, workers, update});
    EXPECT_TRUE(ended(server.wait(), 0, ""));
    return result;
  };
  const std::string update = "--variable-update=parameter_server";
  const std::vector<double> on_gpus = losses({update});
  for (const std::vector<double>& others : {losses({update, "--local_parameter_device=cpu"}),
                                            served(update), served("--variable-update=byteps")}) {
    ASSERT_EQ(others.size(), on_gpus.size());
    for (std::size_t i = 0; i < others.size(); ++i) {
      EXPECT_NEAR(others[i], on_gpus[i], 1e-4 * on_gpus[i]) << i;
    }
  }
}

TEST_F(CudaProgram, AutoTakesAGpuWhereThereIsOneAndElseAnEmulatedDevice) {
  EXPECT_TRUE(ended(run("", {"--device=auto"}), 0, ""));
  EXPECT_EQ(results().at("config").at("device"), "gpu");
  EXPECT_TRUE(ended(run("devices=0", {"--device=auto"}), 0, ""));
  EXPECT_EQ(results().at("config").at("device"), "emulated");
}

TEST_F(CudaProgram, AutoPassesOverAGpuThatThisBuildHasNoCodeFor) {
  EXPECT_TRUE(ended(run("capability=80", {"--device=auto"}), 0,
                    "--device auto is emulated: CUDA device 0 is a Fake GPU 0 of compute "
                    "capability 8.0"));
  EXPECT_EQ(results().at("config").at("device"), "emulated");
}

TEST_F(CudaProgram, AGpuThatAutoFindsAndCannotOpenEndsTheRunWithWhatToUse) {
  for (const auto& [failure, why] : {std::pair{"fail=cudaSetDevice:1:46", "exclusive use"},
                                     {"fail=cudaSetDevice:1:2", "cannot be opened"}}) {
    const ChildExit exit = run(failure, {"--device=auto"});
    EXPECT_TRUE(ended(exit, 3, why));
    EXPECT_TRUE(ended(exit, 3, "or use --device emulated"));
  }
}

TEST_F(CudaProgram, AGpuThatCannotBeUsedIsUnavailable) {
  EXPECT_TRUE(ended(run("devices=0"), 3, "CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(ended(run("driver=12080"), 3, "supports CUDA 12.8 only: install NVIDIA's driver"));
  EXPECT_TRUE(ended(run("capability=80"), 3, "use another device"));
  EXPECT_TRUE(ended(run("fail=cudaSetDevice:1:46"), 3, "exclusive use"));
}

TEST_F(CudaProgram, AnOldLibraryAndADamagedOneAreNamed) {
  EXPECT_TRUE(ended(run("dnn=91300"), 3,
                    "cuDNN 9.13.0 is loaded, 9.19.0 or a newer 9 is needed: install it"));
  write_text(folder_ / "libcudnn.so.9", "");
  EXPECT_TRUE(ended(run("", {}, folder_.path().native()), 3, "libcudnn.so.9: file too short"));
}

TEST_F(CudaProgram, AGpuThatIsTooSmallNamesABatchThatFits) {
  const std::vector<std::string> large{"--model=resnet20", "--batch-size=256"};
  EXPECT_TRUE(ended(run("memory_mib=300", large), 2, "; a batch of "));
}

TEST_F(CudaProgram, AFailingGpuKeepsTheStepsBeforeIt) {
  const std::vector<std::string> untimed{"--device=gpu:autotune=false"};  // launches no graph
  EXPECT_TRUE(ended(run("fail=cudaGraphLaunch:20:999", untimed), 8, "in step 20: CUDA device 0: "));
  const nlohmann::json kept = results();
  EXPECT_EQ(kept.at("status"), "failed");
  EXPECT_GT(kept.at("step_ms").size(), 10U);
}

TEST_F(CudaProgram, AnEngineThatFailsWhileEnginesAreTimedIsNotTaken) {
  EXPECT_TRUE(ended(run("break=0"), 0, ""));
  EXPECT_TRUE(ended(run("refuse=0"), 0, ""));
}

TEST_F(CudaProgram, AnIllegalAccessEndsTheRunWithWhatToDo) {
  EXPECT_TRUE(ended(run("fail=cudaEventSynchronize:40:700"), 8, "under compute-sanitizer"));
}

}  // namespace
}  // namespace penstock

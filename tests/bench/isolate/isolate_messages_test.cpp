// SPDX-License-Identifier: Apache-2.0
// Runs `penstock isolate` with producers that the test starts, as a user would. One side is many
// times slower than the others and must be blamed.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/sweep/child_run.h"
#include "bench/sweep/private_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class IsolateMessages : public testing::Test {
 protected:
  std::string endpoint() const { return "ipc://" + (scratch_.path() / "feed").native(); }

  void serve(std::vector<std::string> more) {
    Words words =
        joined({PENSTOCK_PROGRAM, "serve", "--fake-location=host", "--model=lenet",
                "--batch-size=8", "--hwm=1", "--format=framed", "--endpoint=" + endpoint()},
               more);
    producer_.emplace(ChildCommand{.arguments = words, .timeout = 100s});
  }

  nlohmann::json isolate(const std::string& device, std::vector<std::string> more = {}) {
    const std::filesystem::path out = scratch_.path() / "out";
    const ChildExit exit =
        exit_of(joined({PENSTOCK_PROGRAM, "isolate",
                        "--fake-location=zmq-consume:hwm=1,endpoint=" + endpoint(), "--model=lenet",
                        "--batch-size=8", "--budget=12s", "--num-batches=20", "--device=" + device,
                        "--out=" + out.native()},
                       more),
                100s);
    EXPECT_TRUE(exit.code == 0 || exit.code == 7) << exit.last_words;
    std::ifstream file(out / "isolation.json");
    return nlohmann::json::parse(file, nullptr, false);
  }

  /// If a busy machine leaves too few blocks to show a cost, nothing is blamed.
  static void expect_blame(const nlohmann::json& json, const char* blame) {
    const bool costs = json["cost"]["verdict"] == "slower";
    EXPECT_EQ(json["delivery"]["blame"], costs ? blame : "nobody") << json["delivery"];
    EXPECT_TRUE(costs || json["blocks"] < 3) << json["verdict"];
  }

  const PrivateFolder scratch_;
  std::optional<ChildProcess> producer_;
};

TEST_F(IsolateMessages, AProducerThatIsHeldToARateIsToBlame) {
  serve({"--img-per-s=400"});
  const auto json = isolate("emulated:img_per_s=8000");
  const auto& delivery = json["delivery"];
  expect_blame(json, "producer");
  EXPECT_EQ(delivery["timed"], true);
  EXPECT_EQ(delivery["clocks"], "one clock");
  EXPECT_EQ(delivery["producers"], 1);
  EXPECT_GT(delivery["making_percent"].get<double>(), 50);
  EXPECT_GT(delivery["waits_in_percent"].get<double>(), 50);
  ASSERT_EQ(delivery["parts"].size(), 5U);
  EXPECT_EQ(delivery["parts"][0]["side"], "producer");
  EXPECT_GT(delivery["parts"][0]["percent"].get<double>(), 50);
  if (json["cost"]["verdict"] != "slower") return;
  ASSERT_FALSE(json["cures"].empty());
  EXPECT_TRUE(says(json["cures"][0].get<std::string>(), "producers like this one"))
      << json["cures"];
}

TEST_F(IsolateMessages, ADeviceThatIsSlowHoldsTheProducersBack) {
  serve({});
  const auto delivery = isolate("emulated:img_per_s=400")["delivery"];
  EXPECT_EQ(delivery["blame"], "nobody") << delivery;
  EXPECT_GT(delivery["waits_out_percent"].get<double>(), 50) << delivery;
  EXPECT_GT(delivery["batches_ready"].get<double>(), 0.5) << "back-pressure reaches the producer";
  EXPECT_LT(delivery["making_percent"].get<double>(), 50) << delivery;
}

TEST_F(IsolateMessages, TheLadderSaysWhatTransportAndConsumerCouldDo) {
  serve({"--img-per-s=400"});
  const auto json = isolate("emulated:img_per_s=8000", {"--ladder", "--ladder-budget=8s"});
  ASSERT_EQ(json["ladder"].size(), 5U);
  for (const auto& rung : json["ladder"]) EXPECT_EQ(rung["unavailable"], "") << rung;
  const auto& delivery = json["delivery"];
  expect_blame(json, "producer");
  EXPECT_GT(delivery["transport_img_per_s"].get<double>(), 2000) << delivery;
  EXPECT_GT(delivery["consumer_img_per_s"].get<double>(), 2000) << delivery;
}

}  // namespace
}  // namespace penstock

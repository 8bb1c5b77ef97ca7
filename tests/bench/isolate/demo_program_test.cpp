// SPDX-License-Identifier: Apache-2.0
// Runs `penstock demo` as a newcomer does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/run/processes/child_process.h"
#include "bench/sweep/private_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(DemoProgram, FindsThePlantedFaultAndSaysHowToMeasureOnesOwnLoader) {
  const PrivateFolder scratch;
  const std::filesystem::path out = scratch.path() / "demo";
  ChildProcess child(
      {.arguments = {PENSTOCK_PROGRAM, "demo", "--out=" + out.native()}, .timeout = 80s});
  const ChildExit exit = child.wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "penstock isolate --loader " + (out / "loader.py").native()));
  EXPECT_TRUE(says(exit.output, "Tried workers=4")) << exit.output;
  EXPECT_TRUE(says(exit.output, "penstock isolate --loader my_loader.py:make_loader"));
  const nlohmann::json answer = nlohmann::json::parse(read_text(out / "isolation.json"))["answer"];
  EXPECT_EQ(answer["next"], "try_setting");
  EXPECT_EQ(answer["candidates"][0]["settings"][0]["name"], "workers");
  EXPECT_EQ(answer["candidates"][0]["settings"][0]["now"], "0");
  EXPECT_NE(answer["candidates"][0]["basis"], "predicted");
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "bench/config/unused_flags.h"
#include "bench/config/run_flags.h"

#include <gtest/gtest.h>

#include "bench/cli.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Words = std::vector<std::string>;

RunConfig parse(const Words& arguments) {
  RunConfig config;
  apply_like_of(config, arguments);
  parse_flags({.verb = "run"}, run_flags(config), arguments);
  return config;
}
/// All messages for a run with these flags.
std::string said(const Words& arguments) {
  const RunConfig config = parse(arguments);
  std::string text;
  for (const std::string& sentence : unused_flags(std::span(&config, 1), arguments)) {
    text += sentence + "\n";
  }
  return text;
}

TEST(UnusedFlags, EachIsNamedOnceAndOnlyWhereNothingDependsOnIt) {
  struct Case {
    Words unused, used;
  };
  const Words queue{"--fake-location=queue"};
  for (const auto& [unused, used] :
       {Case{{"--data_dir=here", "--fake-location=cpu"}, {"--data_dir=here"}},
        {{"--data_name=imagenet"}, {"--data_name=imagenet", "--data_dir=here"}},
        {{"--data_name=cifar10", "--fake-location=gpu"},
         {"--data_name=cifar10", "--fake-location=queue"}},
        {{"--data=here", "--fake-location=zmq-consume:endpoint=ipc://a"},
         {"--data=here", "--fake-location=zmq-consume"}},
        {{"--num_eval_batches=3"}, {"--num_eval_batches=3", "--eval"}},
        {{"--eval-data-dir=there"},
         {"--eval-data-dir=there", "--eval-during-training-every-n-steps=2"}},
        {{"--resnet-base-lr=0.1", "--model=trivial"}, {"--resnet-base-lr=0.1"}},
        {{"--resnet-base-lr=0.1", "--init-learning-rate=1"}, {"--init-learning-rate=1"}},
        {{"--init-learning-rate=1", "--forward-only"}, {"--init-learning-rate=1"}},
        {{"--fp16-loss-scale=64"}, {"--fp16-loss-scale=64", "--use-fp16", "--device=cpu"}},
        {{"--use-fp16"}, {"--use-fp16", "--device=cpu"}},
        {{"--precision=bf16"}, {"--precision=bf16", "--device=cpu"}},
        {{"--prefetch=9"}, {"--prefetch=9", "--fake-location=host"}},
        {{"--device-slots=9", "--fake-location=python:loader=a.py:f"}, {"--device-slots=9"}},
        {{"--loop=sync"}, {"--loop=sync", "--fake-location=python:loader=a.py:f"}},
        {{"--pinned-memory=false"}, {"--pinned-memory=false", "--fake-location=host"}},
        {{"--batch-group-size=2"}, {"--batch-group-size=2", "--fake-location=host"}},
        {{"--batch-group-size=2", "--fake-location=python:loader=a.py:f"},
         {"--batch-group-size=2", "--fake-location=host"}},
        {{"--max-ckpts-to-keep=2"}, {"--max-ckpts-to-keep=2", "--train-dir=t"}}}) {
    const std::string flag = kebab(unused.front().substr(2, unused.front().find('=') - 2));
    const std::string text = said(unused);
    EXPECT_TRUE(says(text, "has no effect in this run: ")) << unused.front();
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    const std::string named = flag == "data" ? "data-dir" : flag;
    EXPECT_TRUE(text.starts_with("--" + named + " ")) << text;
    EXPECT_EQ(said(used), "") << used.front();
  }
}

TEST(UnusedFlags, DefaultsOfAnotherSystemWereNotAskedFor) {
  EXPECT_EQ(said({"--like=tf_cnn_benchmarks"}), "");
  EXPECT_EQ(said({"--num-eval-batches=0"}), "") << "what it is anyway";
}

TEST(UnusedFlags, OneRunThatDependsOnAFlagIsEnough) {
  const Words arguments{"--data-dir=here"};
  std::vector<RunConfig> runs(2, parse({"--data-dir=here", "--fake-location=gpu"}));
  EXPECT_EQ(unused_flags(runs, arguments).size(), 1U);
  runs[1].fake_location = "queue";
  EXPECT_TRUE(unused_flags(runs, arguments).empty());
}

}  // namespace
}  // namespace penstock

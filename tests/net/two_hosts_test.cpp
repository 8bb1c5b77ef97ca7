// SPDX-License-Identifier: Apache-2.0
// Four ranks on two hosts with a link of 1 Gbit/s, and what becomes of them when it is cut.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/mpirun_fixture.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

class TwoHosts : public MpirunFixture {
 protected:
  void SetUp() override {
    const ChildExit exit = penstock::exit_of({PENSTOCK_HOSTS_SCRIPT, "check"});
    if (exit.code == 77) GTEST_SKIP() << exit.output;
    ASSERT_EQ(exit.code, 0) << exit.last_words;
    unsetenv("OMPI_MCA_btl");  // by TCP between hosts
    // Where more ranks than slots are allowed, Open MPI 5 puts all of them on the first host.
    unsetenv("PRTE_MCA_rmaps_default_mapping_policy");
  }

  /// Two ranks on each host; the hosts' names are then in a file. The ranks meet over TCP, or
  /// through MPI.
  void start_on_hosts(const Words& program, bool over_tcp) {
    const std::string meeting =
        over_tcp ? "set -- \"$@\" --rendezvous=${OMPI_MCA_btl_tcp_if_include%.*}.1:29501; " : "";
    start(joined({PENSTOCK_HOSTS_SCRIPT, "2", "sh", "-c",
                  "echo $PENSTOCK_HOST_LINK $PENSTOCK_HOSTS > " + (folder_ / "hosts").native() +
                      "; set -- $PENSTOCK_HOSTS -- \"$@\"; one=$1; two=$2; shift 3; " + meeting +
                      "exec mpirun -np 4 -H "
                      "$one:2,$two:2 \"$@\"",
                  "sh"},
                 rank_of(program)));
  }
  std::vector<std::string> hosts() const {
    std::istringstream names(content_of(folder_ / "hosts"));
    std::string link;
    std::vector<std::string> hosts(2);
    names >> link >> hosts[0] >> hosts[1];
    return hosts;
  }
  /// `state`: up or down.
  void set_link(std::size_t host, const std::string& state) const {
    const ChildExit set = penstock::exit_of({"ip", "link", "set", "v" + hosts()[host], state});
    ASSERT_EQ(set.code, 0) << set.last_words;
  }
  /// Flags of a training on images that are made for it.
  Words on_jpegs(const std::string& batches = "10") const {
    const std::string data = (folder_ / "data").native();
    if (!std::filesystem::exists(data)) {
      const ChildExit made = penstock::exit_of({PENSTOCK_PROGRAM, "dataset", "make", "--data-dir",
                                                data, "--images", "64", "--val-images", "8"});
      EXPECT_EQ(made.code, 0) << made.last_words;
    }
    return {"--device=cpu",
            "--model=tiny_cnn",
            "--fake-location=queue",
            "--data-dir=" + data + "/train",
            "--batch-size=4",
            "--compute-threads=1",
            "--num-batches=" + batches};
  }
  /// As many processes as ranks, equally many on each host.
  void expect_result_of(std::size_t processes) const {
    const Json run = Json::parse(content_of(result()), nullptr, false);
    ASSERT_FALSE(run.is_discarded()) << content_of(left_by(0, "err"));
    ASSERT_EQ(run["ranks"].size(), processes);
    for (std::size_t rank = 0; rank < processes; ++rank) {
      EXPECT_EQ(run["ranks"][rank]["host"], hosts()[rank * 2 / processes]);
    }
    ASSERT_EQ(run["losses"].size(), 10U);
    for (const double loss : run["losses"]) EXPECT_TRUE(std::isfinite(loss));
    std::filesystem::remove(result());
  }
  void expect_code(int rank, const std::string& code) const {
    EXPECT_EQ(content_of(left_by(rank, "code")), code + "\n")
        << "rank " << rank << ": " << content_of(left_by(rank, "err"));
  }
};

class MpirunTwoHosts : public TwoHosts, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Ways, MpirunTwoHosts, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "OverTcp" : "ThroughMpi"; });

TEST_P(MpirunTwoHosts, TrainTogetherOnJpegs) {
  for (const char* update : {"horovod", "sma", "async-sgd", "async-sgd:prefetch=true"}) {
    SCOPED_TRACE(update);
    start_on_hosts(training(on_jpegs(), update), GetParam());
    await_end();
    for (const int rank : {0, 1, 2, 3}) expect_code(rank, "0");
    expect_result_of(4);
  }
}

/// A server and a worker on each, in plain text and with keys.
TEST_F(TwoHosts, TrainWithServersOnJpegs) {
  const std::string keys = folder_ / "keys";
  for (const char* const name : {"server", "worker"}) {
    const ChildExit made =
        penstock::exit_of({PENSTOCK_PROGRAM, "keygen", "--out", keys, "--name", name});
    ASSERT_EQ(made.code, 0) << made.last_words;
  }
  const std::string tasks =
      "echo $PENSTOCK_HOST_LINK $PENSTOCK_HOSTS > " + (folder_ / "hosts").native() +
      "; net=${OMPI_MCA_btl_tcp_if_include%.*}; serves=$1; trains=$2; shift 2; "
      "set -- $PENSTOCK_HOSTS -- \"$@\"; one=$1; two=$2; "
      "shift 3; on=" PENSTOCK_HOSTS_SCRIPT
      "; cluster=\"--ps-hosts $net.1:22220,$net.2:22220 "
      "--worker-hosts $net.1:22221,$net.2:22221\"; set -e; "
      "$on on $one " PENSTOCK_PROGRAM
      " run --job-name ps --task-index 0 $cluster $serves & a=$!; "
      "$on on $two " PENSTOCK_PROGRAM
      " run --job-name ps --task-index 1 $cluster $serves & b=$!; "
      "$on on $two \"$@\" --job-name worker --task-index 1 $cluster $trains & c=$!; "
      "$on on $one \"$@\" --job-name worker --task-index 0 $cluster $trains; "
      "wait $a; wait $b; wait $c";
  const std::string serves_with_keys =
      "--curve-secret " + keys + "/server.key_secret --curve-allow " + keys + "/worker.key";
  const std::string trains_with_keys =
      "--curve-secret " + keys + "/worker.key_secret --curve-server-key " + keys + "/server.key";
  for (const auto& [update, has_keys] : {std::pair{"parameter_server:placement=split", false},
                                         {"parameter_server:sync=false", true},
                                         {"distributed_replicated", false},
                                         {"byteps", true}}) {
    SCOPED_TRACE(update);
    start(joined({PENSTOCK_HOSTS_SCRIPT, "2", "sh", "-c", tasks, "sh",
                  has_keys ? serves_with_keys : "--insecure", has_keys ? trains_with_keys : ""},
                 training(on_jpegs(), update)));
    ASSERT_EQ(child_->wait().code, 0) << child_->wait().last_words;
    expect_result_of(2);
  }
}

TEST_P(MpirunTwoHosts, AHostThatIsCutOffIsNamedAndAllEnd) {
  start_on_hosts(training({"--device=emulated:img_per_s=40", "--batch-size=4",
                           "--num-batches=100000", "--timeout=4s"}),
                 GetParam());
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  set_link(1, "down");
  EXPECT_TRUE(await([this] { return ranks("").empty(); }));
  for (const int rank : {0, 1, 2, 3}) expect_code(rank, "5");
  set_link(1, "up");
  await_end();
  // On either side of the cut one rank tells of the other side.
  ASSERT_EQ(lines_with("was lost").size(), 2U) << ::testing::PrintToString(lines_with("was lost"));
  const std::string told = content_of(left_by(0, "err"));
  for (const std::string rank : {"rank 2 (host ", "rank 3 (host "}) {
    EXPECT_NE(told.find(rank + hosts()[1]), std::string::npos) << told;
  }
  EXPECT_NE(told.find("was lost while measuring, at step "), std::string::npos) << told;
  EXPECT_NE(told.find(": silent for "), std::string::npos) << told;
  EXPECT_NE(content_of(left_by(2, "err")).find("rank 0 (host " + hosts()[0]), std::string::npos);
  EXPECT_EQ(Json::parse(content_of(result()))["status"], "partial");
}

TEST_P(MpirunTwoHosts, ARankThatIsKilledOnTheOtherHostIsNamed) {
  for (const char* update : {"horovod", "async-sgd"}) {
    SCOPED_TRACE(update);
    std::filesystem::remove(steps());
    std::filesystem::remove(result());
    start_on_hosts(training(joined(on_jpegs("100000"), {"--timeout=4s"}), update), GetParam());
    ASSERT_TRUE(await_text(steps(), "\"step\":5"));
    const Ranks all = ranks();
    ASSERT_TRUE(all.contains(3));
    ASSERT_EQ(kill(all.at(3), SIGKILL), 0);
    await_end();
    for (const int rank : {0, 1, 2}) expect_code(rank, "5");
    const std::vector<std::string> lines = lines_with("was lost");
    ASSERT_EQ(lines.size(), 1U) << ::testing::PrintToString(lines);
    EXPECT_EQ(lines[0].find("penstock: rank 3 (host " + hosts()[1]), 0U) << lines[0];
    EXPECT_NE(lines[0].find(": its connection closed"), std::string::npos) << lines[0];
    EXPECT_EQ(Json::parse(content_of(result()))["status"], "partial");
  }
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Lists of machines as users write them, and mpirun's arguments for them.
#include "bench/scaling/launch/hosts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/scaling/launch/mpirun.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Hosts = std::vector<scaling::Host>;

TEST(Hosts, ListHasSlotsAndAddsUpNamesThatComeAgain) {
  EXPECT_EQ(scaling::parse_host_list("a:2,b,a"), (Hosts{{"a", "", 3}, {"b", "", 1}}));
}

TEST(Hosts, ListRefusesWhatIsNoMachine) {
  for (const std::string text : {"", "a:0", "a:x", "-oProxyCommand=x", "a b", "a:99999999"}) {
    EXPECT_THROW(scaling::parse_host_list(text), ConfigError) << text;
  }
}

TEST(Hosts, MoreSlotsThanASumCanHoldAreRefused) {
  std::string one, many, list;
  for (int i = 0; i < 40'000; ++i) {
    one += "localhost slots=65536\n";
    many += "h" + std::to_string(i) + " slots=65536\n";
    list += "localhost:65536,";
  }
  for (const std::string& text :
       {thrown_by<ConfigError>([&] { scaling::parse_host_file(one, "hosts"); }),
        thrown_by<ConfigError>([&] { scaling::parse_host_file(many, "hosts"); })}) {
    EXPECT_EQ(text,
              "hosts line 2: the machines have 131072 slots up to here; expected at most "
              "65536 in all");
  }
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { scaling::parse_host_list(list); }),
                   "at most 65536 in all"));
  EXPECT_EQ(scaling::parse_host_list("a:65535,b").size(), 2U);
}

TEST(Hosts, AListWithASecondAddressSaysWhatToWrite) {
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { scaling::parse_host_list("127.0.0.1:2:10.0.0.1"); }),
                   "expected NAME:SLOTS, such as node1:2"));
}

TEST(Hosts, NodeFileHasANameForPeersAndAnAlias) {
  EXPECT_EQ(scaling::parse_host_file("# ours\n10.0.0.1 one\nnode2.lan  two # spare\n\n", "nodes"),
            (Hosts{{"one", "10.0.0.1", 0}, {"two", "node2.lan", 0}}));
}

TEST(Hosts, HostFileOfMpirunHasSlots) {
  EXPECT_EQ(scaling::parse_host_file("a slots=4 max_slots=8\nb\n", "hosts"),
            (Hosts{{"a", "", 4}, {"b", "", 1}}));
}

TEST(Hosts, FileOfTwoKindsIsRefusedWithTheLine) {
  const std::string text =
      thrown_by<ConfigError>([] { scaling::parse_host_file("a slots=4\nx y\n", "hosts"); });
  EXPECT_TRUE(says(text, "hosts line 2"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { scaling::parse_host_file("a cores=4\n", "hosts"); }),
                   "cores=4"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { scaling::parse_host_file("# nothing\n", "hosts"); }),
                   "no machine"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { scaling::read_host_file("/nowhere/hosts"); }),
                   "/nowhere/hosts"));
}

TEST(Hosts, FirstMachineIsFilledFirstAndTheLastMayHaveFewer) {
  const Hosts hosts{{"a", "", 0}, {"b", "", 0}, {"c", "", 0}};
  EXPECT_EQ(scaling::to_text(scaling::place_ranks(hosts, 8, 3)), "a:3,b:3,c:2");
  EXPECT_EQ(scaling::to_text(scaling::place_ranks(hosts, 2, 3)), "a:2");
  EXPECT_EQ(scaling::to_text(scaling::place_ranks(scaling::parse_host_list("a:1,b:4"), 3, 9)),
            "a:1,b:2");
}

TEST(Hosts, MoreRanksThanRoomAreRefused) {
  const std::string text = thrown_by<ConfigError>(
      [] { scaling::place_ranks(scaling::parse_host_list("a:1,b:2"), 4, 1); });
  EXPECT_TRUE(says(text, "4 ranks do not fit: 2 machines take 3"));
}

TEST(Hosts, UnknownMachinesAreAllNamed) {
  // "invalid" is a domain that never resolves (RFC 2606).
  const Hosts hosts{{"localhost", "", 1}, {"one.invalid", "", 1}, {"localhost", "two.invalid", 1}};
  const std::string agent(scaling::kPlainSsh);
  const std::string text = thrown_by<ConfigError>([&] { scaling::expect_known(hosts, agent); });
  EXPECT_TRUE(says(text, "machines one.invalid, two.invalid"));
  EXPECT_NO_THROW(scaling::expect_known(Hosts{{"localhost", "127.0.0.1", 1}}, agent));
  EXPECT_NO_THROW(scaling::expect_known(Hosts{{"one.invalid", "", 1}}, "an agent of its own"));
}

TEST(Hosts, AliasOfSshIsKnown) {
  const TempFolder folder;
  write_text(folder / "config", "Host one.invalid\n  HostName 127.0.0.1\n");
  const std::string agent = "ssh -F " + (folder / "config").native();
  try {
    scaling::expect_known(Hosts{{"one.invalid", "", 1}}, agent);
  } catch (const ConfigError& error) {
    if (std::system("ssh -V 2>/dev/null") != 0) GTEST_SKIP() << "no ssh here";
    FAIL() << error.what();
  }
  EXPECT_THROW(scaling::expect_known(Hosts{{"two.invalid", "", 1}}, agent), ConfigError);
}

TEST(Reach, ThisMachineIsKnownByItsNamesAndAddresses) {
  EXPECT_TRUE(scaling::is_local("localhost"));
  EXPECT_TRUE(scaling::is_local("127.0.0.1"));
  EXPECT_FALSE(scaling::is_local("one.invalid"));
  EXPECT_FALSE(scaling::is_local("192.0.2.1"));  // reserved for documentation (RFC 5737)
}

/// An agent that answers for machines that do not exist.
std::string make_agent(const TempFolder& folder, const std::string& script) {
  const std::filesystem::path path = folder / "agent";
  write_text(path, "#!/bin/sh\n" + script + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.native();
}

TEST(Reach, MachinesSayTheirNames) {
  const TempFolder folder;
  const std::string agent = make_agent(folder, R"([ "$2" = hostname ] && echo "machine-${1%?}")");
  const Hosts hosts{{"a1", "", 1}, {"a2", "", 1}, {"b1", "", 1}};
  const std::vector<std::string> names = scaling::names_of_machines(hosts, agent, {});
  EXPECT_EQ(names, (std::vector<std::string>{"machine-a", "machine-a", "machine-b"}));
  EXPECT_EQ(scaling::shared_machine(names), scaling::SharedMachine::some);
  EXPECT_EQ(scaling::shared_machine({"a", "b"}), scaling::SharedMachine::none);
  EXPECT_EQ(scaling::shared_machine({"a", "a"}), scaling::SharedMachine::all);
}

TEST(Reach, AHostThatDoesNotAnswerIsNamed) {
  const TempFolder folder;
  const std::string agent = make_agent(folder, "echo 'no route' >&2; exit 255");
  const std::string text = thrown_by<Unavailable>([&] {
    scaling::names_of_machines(Hosts{{"node7", "", 1}}, agent, {});
  });
  EXPECT_TRUE(says(text, "cannot reach node7"));
  EXPECT_TRUE(says(text, "no route"));
}

bool has(const std::vector<std::string>& words, const std::vector<std::string>& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

TEST(MpirunWords, RanksOfOneMachineMayOutnumberItsCores) {
  const std::vector<std::string> words = scaling::mpirun_words({.ranks = 4, .as_root = true});
  EXPECT_TRUE(has(words, {"-np", "4", "--bind-to", "none"}));
  EXPECT_TRUE(has(words, {"--mca", "mpi_yield_when_idle", "1"}));
  EXPECT_TRUE(has(words, {"--oversubscribe"}));
  EXPECT_TRUE(has(words, {"--allow-run-as-root"}));
}

TEST(MpirunWords, MachinesKeepTheirSlots) {
  const std::vector<std::string> words = scaling::mpirun_words(
      {.ranks = 3, .hosts = scaling::parse_host_list("a:2,b"), .agent = "ssh -F c", .grace = {}});
  EXPECT_TRUE(has(words, {"--host", "a:2,b:1", "--map-by", "slot"}));
  EXPECT_TRUE(has(words, {"--mca", "plm_rsh_agent", "ssh -F c"}));
  EXPECT_TRUE(has(words, {"odls_base_sigkill_timeout", "1"}));
  EXPECT_FALSE(has(words, {"--oversubscribe"}));
  EXPECT_FALSE(has(words, {"--allow-run-as-root"}));
  EXPECT_FALSE(has(words, {"btl"}));
}

TEST(MpirunWords, NamesOfOneMachineTalkOverSockets) {
  const auto words_of = [](scaling::SharedMachine shared) {
    return scaling::mpirun_words({.ranks = 2,
                                  .hosts = scaling::parse_host_list("a,b"),
                                  .agent = "ssh",
                                  .shared_machine = shared});
  };
  const std::vector<std::string> loopback{"btl_tcp_if_include", "127.0.0.0/8"};
  EXPECT_TRUE(has(words_of(scaling::SharedMachine::some), {"--mca", "btl", "self,tcp"}));
  EXPECT_FALSE(has(words_of(scaling::SharedMachine::some), loopback));
  EXPECT_TRUE(has(words_of(scaling::SharedMachine::all), loopback));
}

}  // namespace
}  // namespace penstock

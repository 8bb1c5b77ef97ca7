// SPDX-License-Identifier: Apache-2.0
// Ranks that meet over TCP, as threads of the test. What ends a process is tested with processes:
// tests/bench/rendezvous_program_test.cpp.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/reserved_port.h"
#include "tests/support/thrown_by.h"
#include "trainer/cluster/liveness/frame_socket.h"
#include "trainer/cluster/processes.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using cluster::Launch;
using cluster::Processes;

class TcpProcesses : public ::testing::Test {
 protected:
  using Body = std::function<void(Processes&)>;

  Launch launch(std::int32_t rank, std::int32_t size) const {
    return {.launcher = "torchrun",
            .rank = rank,
            .size = size,
            .rank_name = "RANK",
            .meeting = "127.0.0.1:" + port_.text(),
            .job = "one"};
  }
  std::string where() const { return "127.0.0.1:" + port_.text(); }

  /// Why each process did not join, or "": a thread for each. Those that join call `body`.
  std::vector<std::string> join(const std::vector<Launch>& launches, const Body& body = {},
                                Nanoseconds patience = 20s) {
    std::vector<std::string> reasons(launches.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          const auto processes =
              cluster::join_processes(launches[i], clock_, patience, stop_.get_token());
          if (body) body(*processes);
        } catch (const std::exception& error) {
          reasons[i] = error.what();
        }
      });
    }
    threads.clear();
    return reasons;
  }

  static std::unique_ptr<CollectiveGroup> group_of(Processes& processes, Device& device,
                                                   collectives::ExchangeMethod method) {
    return processes.make_group({device, 20s, {}, {}, {.method = method}});
  }

  SteadyClock clock_;
  std::stop_source stop_;
  ReservedPort port_;
};

TEST_F(TcpProcesses, TellEachOtherTextsAndCountThoseOfTheHost) {
  const auto text_of = [](std::int32_t rank) { return std::string(100'000U * rank, 'a'); };
  const auto reasons = join({launch(2, 3), launch(0, 3), launch(1, 3)}, [&](Processes& processes) {
    const Launch& mine = processes.launch();
    EXPECT_EQ(mine.local_rank, mine.rank);
    EXPECT_EQ(mine.local_size, 3);
    for (int round = 0; round < 3; ++round) {
      const auto texts = processes.all_gather(text_of(mine.rank), 20s, "telling");
      ASSERT_EQ(texts.size(), 3U);
      for (std::int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(texts[rank], text_of(rank));
    }
  });
  EXPECT_EQ(reasons, std::vector<std::string>(3));
}

/// All files are of one process here.
TEST_F(TcpProcesses, MeetAlthoughTheShellAllowsFewFiles) {
  constexpr std::int32_t kRanks = 128;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 2000) GTEST_SKIP() << "only " << before.rlim_max << " files may be open";
  const rlimit few{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Launch> launches;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) launches.push_back(launch(rank, kRanks));
  const auto reasons = join(launches, [&](Processes& processes) {
    EXPECT_EQ(processes.all_gather("x", 20s, "telling"), std::vector<std::string>(kRanks, "x"));
  });
  EXPECT_EQ(reasons, std::vector<std::string>(kRanks));
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(TcpProcesses, MoreRanksThanOpenFilesAreRefused) {
  constexpr std::int32_t kRanks = 500'000'000;
  for (const std::string& reason : join({launch(0, kRanks), launch(1, kRanks)})) {
    EXPECT_TRUE(says(reason, "500000000 ranks that meet over TCP need 1000000256 open files"));
  }
}

TEST_F(TcpProcesses, MeetAndExchangeOverIPv6) {
  Launch first = launch(0, 2), second = launch(1, 2);
  first.meeting = second.meeting = "[::1]:" + port_.text();
  const auto reasons = join({first, second}, [&](Processes& processes) {
    HostDevice device(clock_);
    const auto stream = device.make_stream();
    const auto group = group_of(processes, device, collectives::ExchangeMethod::links);
    std::vector<float> values(1000, 2);
    group->join(processes.launch().rank)->all_reduce_sum({values.data(), values.size()}, *stream);
    EXPECT_EQ(values, std::vector<float>(1000, 4));
  });
  if (says(reasons[0], "IPv6") || says(reasons[0], "Cannot assign")) GTEST_SKIP() << reasons[0];
  EXPECT_EQ(reasons, std::vector<std::string>(2));
}

TEST_F(TcpProcesses, ExchangeOverLinksAndInSharedMemory) {
  for (const auto method :
       {collectives::ExchangeMethod::links, collectives::ExchangeMethod::shared_memory,
        collectives::ExchangeMethod::mpi}) {
    const auto reasons = join({launch(0, 2), launch(1, 2)}, [&](Processes& processes) {
      HostDevice device(clock_);
      const auto stream = device.make_stream();
      const auto group = group_of(processes, device, method);
      const auto collective = group->join(processes.launch().rank);
      for (const std::size_t count : {1U, 5000U, 3'000'000U}) {
        std::vector<float> values(count, static_cast<float>(processes.launch().rank + 1));
        collective->all_reduce_sum({values.data(), count}, *stream);
        EXPECT_EQ(values, std::vector<float>(count, 3));
      }
      EXPECT_THROW(group_of(processes, device, collectives::ExchangeMethod::mpi_blocking),
                   Unavailable);
    });
    EXPECT_EQ(reasons, std::vector<std::string>(2));
  }
}

TEST_F(TcpProcesses, AMissingRankIsNamedToAllOthers) {
  const auto reasons = join({launch(0, 4), launch(2, 4)}, {}, 300ms);
  for (const std::string& reason : reasons) {
    EXPECT_TRUE(says(reason, "rank 1, rank 3 of 4 did not come to " + where() + " within 0.3 s"));
  }
}

TEST_F(TcpProcesses, SizesThatDisagreeEndBoth) {
  for (const std::string& reason : join({launch(0, 3), launch(1, 2)})) {
    EXPECT_TRUE(says(reason, "rank 1 says that there are 2 processes, and rank 0 says 3"));
  }
}

TEST_F(TcpProcesses, VersionsThatDifferEndBoth) {
  Launch first = launch(0, 2), second = launch(1, 2);
  first.program = "0.2.0 (abc)";
  second.program = "0.1.0 (def)";
  for (const std::string& reason : join({first, second})) {
    EXPECT_TRUE(says(reason, "rank 1 is Penstock 0.1.0 (def), and rank 0 is 0.2.0 (abc)"));
  }
}

TEST_F(TcpProcesses, RanksOfAnotherJobOrAttemptAreRefusedAndTheJobGoesOn) {
  Launch other = launch(1, 2), older = launch(1, 2), host = launch(0, 2), rank = launch(1, 2);
  other.job = "two";
  host.restarts = rank.restarts = 1;
  std::jthread first([&] { EXPECT_EQ(join({host})[0], ""); });
  const std::vector<std::string> reasons = join({other, older});
  EXPECT_EQ(join({rank})[0], "");
  EXPECT_TRUE(says(reasons[0], "rank 1 is of job 'two', and job 'one' meets at " + where()));
  EXPECT_TRUE(says(reasons[1], "rank 1 is of a job that was restarted 0 times, and ranks meet at"));
}

TEST_F(TcpProcesses, OneRankTwiceIsRefused) {
  const auto reasons = join({launch(0, 3), launch(1, 3), launch(1, 3)}, {}, 1s);
  const auto with = [&](const std::string& text) {
    return std::count_if(reasons.begin(), reasons.end(), [&](const std::string& reason) {
      return reason.find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(with("two processes say that they are rank 1 of 3"), 1);
  EXPECT_EQ(with("rank 2 of 3 did not come"), 2);
}

TEST_F(TcpProcesses, ANameThatIsNoHostIsNamed) {
  Launch lost = launch(1, 2);
  lost.meeting = "no-such-host.invalid:2000";
  // Names may appear late, so that the rank waits; a stop ends the wait.
  std::jthread stopper([&] { stop_.request_stop(); });
  EXPECT_TRUE(
      says(join({lost})[0], "was stopped while its ranks met at no-such-host.invalid:2000"));
}

TEST_F(TcpProcesses, Rank0SaysThatTheNameIsNoHost) {
  Launch first = launch(0, 2);
  first.meeting = "no-such-host.invalid:" + port_.text();
  EXPECT_TRUE(says(join({first}, {}, 300ms)[0],
                   "on this host the name 'no-such-host.invalid' has no address"));
}

TEST_F(TcpProcesses, AnotherProgramAtTheAddressIsReported) {
  liveness::FrameListener listener = liveness::FrameListener::tcp(true);
  Launch lost = launch(1, 2);
  lost.meeting = listener.address();
  liveness::FrameSocket peer;
  std::jthread program([&] {
    while (!peer.is_open()) {
      peer = listener.accept();
      std::this_thread::yield();
    }
    const std::string text = "220 mail.example.com ESMTP\r\n";
    peer.send_some(std::as_bytes(std::span(text)));
  });
  EXPECT_TRUE(says(join({lost})[0], "what listens there is not rank 0 of Penstock"));
}

}  // namespace
}  // namespace penstock

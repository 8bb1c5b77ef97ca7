// SPDX-License-Identifier: Apache-2.0
// Tests models that processes read from each other over real sockets. The processes are threads
// here, which claim to be on one host or on several.
#include "trainer/cluster/servers/process_models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/processes_in_memory.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thrown_by.h"
#include "tests/support/uniform_model.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/model_client.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The texts that ThreadProcesses share.
class TextBoard {
 public:
  explicit TextBoard(std::int32_t size) : size_(static_cast<std::size_t>(size)) {}
  std::vector<std::string> gather(std::size_t round, std::int32_t rank, std::string_view text) {
    std::unique_lock lock(mutex_);
    auto& texts = rounds_[round];
    texts[rank] = text;
    changed_.notify_all();
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return texts.size() == size_; })) {
      throw TimeoutError("not all ranks came");
    }
    std::vector<std::string> all;
    for (const auto& [of, one] : texts) all.push_back(one);
    return all;
  }

 private:
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, std::map<std::int32_t, std::string>> rounds_;
};

/// A process played by a thread. It exchanges texts, but no gradients.
class ThreadProcesses final : public PlayedProcess {
 public:
  ThreadProcesses(TextBoard& board, std::int32_t rank, std::int32_t size)
      : PlayedProcess({.launcher = "the test", .rank = rank, .size = size}), board_(board) {}
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds,
                                      std::string_view) override {
    return texts_.emplace_back(board_.gather(texts_.size(), launch().rank, text));
  }
  /// All texts of each call, in order.
  const std::vector<std::vector<std::string>>& texts() const { return texts_; }

 private:
  TextBoard& board_;
  std::vector<std::vector<std::string>> texts_;
};

enum class Hosts { one, several };

std::string text(const cluster::ServerHeader& header) {
  return std::string(cluster::text_of(cluster::to_bytes(header)));
}
std::string text(const cluster::ModelToken& token) { return {token.begin(), token.end()}; }

cluster::ServerHeader request_for(std::uint32_t owner, std::uint64_t number) {
  return {.kind = cluster::MessageKind::read_model,
          .key = owner,
          .step = number,
          .length = sizeof(cluster::ModelToken)};
}

void send(zmq::socket_t& socket, const std::vector<std::string>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    socket.send(zmq::buffer(frames[i]),
                i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

/// Receives a header and the number of bytes after it.
cluster::ServerHeader receive(zmq::socket_t& socket) {
  zmq::message_t header, body;
  EXPECT_TRUE(socket.recv(header));
  if (header.more()) {
    EXPECT_TRUE(socket.recv(body));
  }
  EXPECT_FALSE(body.more());
  return cluster::parse_header({header.data<std::byte>(), header.size()}, body.size());
}

class ProcessModelStores : public ::testing::TestWithParam<Hosts> {
 protected:
  static constexpr std::size_t kCount = 5000;

  /// One process of the run, as the argument of the body that runs for each of them.
  struct Process {
    Process(ProcessModelStores& test, TextBoard& board, std::int32_t rank, std::int32_t size,
            std::int32_t threads)
        : processes(board, rank, size),
          devices(static_cast<std::size_t>(threads), &test.device_),
          store(cluster::make_process_models({.processes = processes,
                                              .devices = devices,
                                              .clock = test.clock_,
                                              .probe = probe,
                                              .patience = 20s,
                                              .stopping = stop.get_token(),
                                              .abandon = {},
                                              .host = test.host(rank)})),
          stream(test.device_.make_stream()) {}
    void meet() { processes.all_gather("", 20s, "meeting"); }
    /// The server address that this process sent to the others.
    nlohmann::json address(std::int32_t of) const {
      return nlohmann::json::parse(processes.texts().at(1).at(static_cast<std::size_t>(of)));
    }
    std::int64_t refused() const { return probe.values().at("model_requests_refused"); }

    Probe probe;
    std::stop_source stop;
    ThreadProcesses processes;
    std::vector<Device*> devices;
    std::unique_ptr<cluster::ModelStore> store;
    std::unique_ptr<Stream> stream;
  };

  cluster::HostFacts host(std::int32_t rank) const {
    const std::int32_t number = GetParam() == Hosts::one ? 0 : rank;
    return {.identity = fmt::format("host {}", number),
            .name = fmt::format("host{}", number),
            .addresses = {"127.0.0.1"}};
  }

  void run(std::int32_t size, std::int32_t threads, const std::function<void(Process&)>& body) {
    TextBoard board(size);
    run_ranks(size, [&](std::int32_t rank) {
      Process process(*this, board, rank, size, threads);
      body(process);
      process.meet();  // no server may end while another process reads
    });
  }

  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_P(ProcessModelStores, GiveTheNewestModelOfTheOneWhoIsAsked) {
  run(3, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    UniformModel published(kCount), mine(kCount);
    const std::int32_t right = (rank + 1) % 3;
    EXPECT_EQ(process.store->read(rank, right, mine.tensor(), *process.stream), std::nullopt);
    process.meet();
    for (std::int64_t version = 0; version < 7; ++version) {
      published.fill(static_cast<float>(100 * rank + version));
      process.store->publish(rank, 3 * version, published.tensor(), *process.stream);
      process.meet();
      for (const std::int32_t owner : {0, 1, 2}) {
        EXPECT_EQ(process.store->read(rank, owner, mine.tensor(), *process.stream), 3 * version);
        EXPECT_EQ(mine.value(), static_cast<float>(100 * owner + version));
      }
      process.meet();
    }
    EXPECT_EQ(process.refused(), 0);
  });
}

TEST_P(ProcessModelStores, ServeEveryThreadOfEveryProcess) {
  constexpr std::int32_t kThreads = 2, kRanks = 4;
  run(2, kThreads, [&](Process& process) {
    const std::int32_t first = process.processes.launch().rank * kThreads;
    for (std::int32_t rank = first; rank < first + kThreads; ++rank) {
      UniformModel published(kCount, static_cast<float>(rank));
      process.store->publish(rank, rank, published.tensor(), *process.stream);
    }
    process.meet();
    run_ranks(kThreads, [&](std::int32_t thread) {
      const auto own = device_.make_stream();
      UniformModel mine(kCount);
      for (std::int32_t owner = 0; owner < kRanks; ++owner) {
        EXPECT_EQ(process.store->read(first + thread, owner, mine.tensor(), *own), owner);
        EXPECT_EQ(mine.value(), static_cast<float>(owner));
      }
    });
  });
}

TEST_P(ProcessModelStores, NeverMixTwoModelsUnderFreeRunningRanks) {
  constexpr std::int32_t kRanks = 3;
  run(kRanks, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    UniformModel first(kCount, 0);
    process.store->publish(rank, 0, first.tensor(), *process.stream);
    process.meet();
    expect_whole_models(*process.store, rank, kRanks, 200, kCount, *process.stream);
  });
}

/// libzmq drops replies if it takes the queue of a reader for full.
TEST_P(ProcessModelStores, AnswerReadersThatAskAgainAtOnce) {
  run(3, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    UniformModel published(kCount, static_cast<float>(rank)), mine(kCount);
    process.store->publish(rank, rank, published.tensor(), *process.stream);
    process.meet();
    for (int i = 0; rank > 0 && i < 3000; ++i) {
      ASSERT_EQ(process.store->read(rank, 0, mine.tensor(), *process.stream), 0);
    }
  });
}

TEST_P(ProcessModelStores, CarryModelsOfDevicesThatHaveNoWeights) {
  run(2, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    process.store->publish(rank, 4, {}, *process.stream);
    process.meet();
    EXPECT_EQ(process.store->read(rank, 1 - rank, {}, *process.stream), 4);
  });
}

TEST_P(ProcessModelStores, SayWhoseModelIsOfAnotherLength) {
  run(2, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    UniformModel published(static_cast<std::size_t>(10 + 10 * (1 - rank))), mine(20);
    process.store->publish(rank, 0, published.tensor(), *process.stream);
    process.meet();
    if (rank == 1) return;
    const std::string error =
        thrown_by<Error>([&] { process.store->read(0, 1, mine.tensor(), *process.stream); });
    EXPECT_TRUE(says(error, "rank 1"));
  });
}

TEST_P(ProcessModelStores, LetAReaderLeaveWhenTheRunStops) {
  run(2, 1, [&](Process& process) {
    process.stop.request_stop();
    UniformModel mine(kCount);
    const std::int32_t rank = process.processes.launch().rank;
    EXPECT_THROW(process.store->read(rank, 1 - rank, mine.tensor(), *process.stream), Error);
  });
}

/// Anyone who connects can send anything. A stranger gets no answer; legitimate clients still do.
TEST_P(ProcessModelStores, AnswerNoStranger) {
  run(2, 1, [&](Process& process) {
    const std::int32_t rank = process.processes.launch().rank;
    UniformModel published(kCount, 7), mine(kCount);
    process.store->publish(rank, 1, published.tensor(), *process.stream);
    process.meet();
    if (rank == 1) {
      zmq::context_t context;
      zmq::socket_t stranger(context, ZMQ_DEALER);
      stranger.set(zmq::sockopt::linger, 0);
      stranger.set(zmq::sockopt::rcvtimeo, 10000);
      const nlohmann::json address = process.address(0);
      stranger.connect(address.at("endpoint").get<std::string>());
      const cluster::ModelToken token = address.at("token");
      cluster::ModelToken guessed = token;
      guessed.back() ^= 1;
      const std::string good = text(request_for(0, 99));
      std::string other_magic = good;
      other_magic[0] ^= 1;
      send(stranger, {good, text(guessed)});
      send(stranger, {other_magic, text(token)});
      send(stranger, {""});
      send(stranger, {good.substr(0, good.size() - 1), text(token)});
      send(stranger, {good, text(token), ""});  // a valid request with another frame after it
      send(stranger, {text(request_for(1, 98)), text(token)});  // not a rank of that process
      send(stranger, {good, text(token)});
      // The first replies answer the last two requests: the five earlier ones got no reply.
      cluster::ServerHeader reply = receive(stranger);
      EXPECT_EQ(reply.step, 98U);
      EXPECT_EQ(reply.kind, cluster::MessageKind::no_model);
      reply = receive(stranger);
      EXPECT_EQ(reply.step, 99U);
      EXPECT_EQ(reply.kind, cluster::MessageKind::model);
      EXPECT_EQ(reply.length, kCount * sizeof(float));
      // Longer than any request, so libzmq closes the connection.
      const std::string long_one(1 << 20, 'x');
      stranger.send(zmq::buffer(long_one), zmq::send_flags::none);
      EXPECT_EQ(process.store->read(1, 0, mine.tensor(), *process.stream), 1);
      EXPECT_EQ(mine.value(), 7);
    }
    process.meet();
    EXPECT_EQ(process.refused(), rank == 0 ? 5 : 0);
  });
}

TEST_P(ProcessModelStores, OpenAPortForOtherHostsAlone) {
  run(2, 1, [&](Process& process) {
    const std::int32_t port = process.address(0).at("port");
    EXPECT_EQ(port != 0, GetParam() == Hosts::several);
    if (port == 0 || process.processes.launch().rank == 0) return;
    // Without the run's key, no message is received.
    zmq::context_t context;
    zmq::socket_t stranger(context, ZMQ_DEALER);
    stranger.set(zmq::sockopt::linger, 0);
    stranger.set(zmq::sockopt::rcvtimeo, 300);
    stranger.connect(fmt::format("tcp://127.0.0.1:{}", port));
    send(stranger, {text(request_for(0, 1)), text(process.address(0).at("token"))});
    zmq::message_t answer;
    EXPECT_FALSE(stranger.recv(answer));
  });
}

INSTANTIATE_TEST_SUITE_P(On, ProcessModelStores, ::testing::Values(Hosts::one, Hosts::several),
                         [](const auto& test) {
                           return test.param == Hosts::one ? "one_host" : "several_hosts";
                         });

/// A scripted server of process 1.
class ModelClients : public ::testing::Test {
 protected:
  ModelClients() : server_(context_, ZMQ_ROUTER) {
    server_.set(zmq::sockopt::linger, 0);
    server_.set(zmq::sockopt::rcvtimeo, 10000);
    server_.bind(fmt::format("ipc://@penstock-model-clients-{}", getpid()));
  }
  cluster::ModelClient make(Nanoseconds patience, std::stop_token stop = {}) {
    const cluster::ModelServerAddress address{.host = "far-away",
                                              .endpoint = server_.get(zmq::sockopt::last_endpoint)};
    return cluster::ModelClient({.servers = {{}, address},
                                 .own = {},
                                 .own_addresses = {},
                                 .patience = patience,
                                 .stopping = std::move(stop),
                                 .abandon = {}});
  }
  /// The next request; the replies go to its sender.
  cluster::ServerHeader receive_request() {
    EXPECT_TRUE(server_.recv(sender_));
    return receive(server_);
  }
  void reply(std::vector<std::string> frames) {
    frames.insert(frames.begin(), sender_.to_string());
    send(server_, frames);
  }

  zmq::context_t context_;
  zmq::socket_t server_;
  zmq::message_t sender_;
};

TEST_F(ModelClients, NameWhoDoesNotAnswerInTime) {
  cluster::ModelClient client = make(100ms);
  EXPECT_EQ(thrown_by<TimeoutError>([&] { client.read(1, 5, 3); }),
            "waited 0.1 s for the model of rank 5 on host far-away: it hangs, is stopped, or "
            "cannot be reached; see the messages of the launcher, or raise --timeout");
}

TEST_F(ModelClients, LeaveAWaitWhenTheRunStops) {
  std::stop_source stop;
  cluster::ModelClient client = make(1h, stop.get_token());
  std::jthread stopper([&] {
    receive_request();  // the client waits now
    stop.request_stop();
  });
  EXPECT_THROW(client.read(1, 5, 3), Error);
}

TEST_F(ModelClients, TakeTheAnswerToTheirRequestAlone) {
  cluster::ModelClient client = make(20s);
  std::jthread server([&] {
    const cluster::ServerHeader request = receive_request();
    ASSERT_EQ(request.key, 5U);
    const std::string model(3 * sizeof(float), '\0');
    cluster::ServerHeader good{.kind = cluster::MessageKind::model,
                               .key = 5,
                               .step = request.step,
                               .length = model.size(),
                               .version = 8};
    cluster::ServerHeader stale = good, empty = good, huge = good, odd = good, other = good;
    stale.step -= 1;
    empty.length = 0;
    huge.length = INT64_MAX;
    odd.length -= 1;
    other.kind = cluster::MessageKind::answer;
    reply({""});
    reply({"nonsense", "nonsense"});
    reply({text(stale), model});
    reply({text(good)});                   // without the model
    reply({text(good), model, model});     // with a second model
    reply({text(good), model.substr(1)});  // cut off
    reply({text(odd), model.substr(1)});   // no whole number of elements
    reply({text(huge), model});
    reply({text(empty), model});
    reply({text(other), model});
    reply({text(good), model});
  });
  const auto model = client.read(1, 5, 3);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->version, 8);
  EXPECT_EQ(model->bytes.size(), 3 * sizeof(float));
}

TEST(HostFacts, SayWhoReachesWhom) {
  const cluster::HostFacts one = cluster::read_host_facts(), other = cluster::read_host_facts();
  EXPECT_EQ(one.identity, other.identity);
  EXPECT_FALSE(one.name.empty());
  for (const std::string& address : one.addresses) EXPECT_FALSE(address.starts_with("127."));
}

}  // namespace
}  // namespace penstock

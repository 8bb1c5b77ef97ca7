// SPDX-License-Identifier: Apache-2.0
// The metrics responder over real sockets: requests of a Prometheus server, and of clients that
// send something else.
#include "bench/run/observe/metrics_server.h"
#include "bench/run/observe/run_metrics.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <deque>

#include "dataflow/error.h"
#include "tests/support/reserved_port.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(port);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void say(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return;  // the server has closed the connection
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  /// Reads until the server closes the connection.
  std::string listen() const {
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t count = 1; count > 0;) {
      count = recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  FileDescriptor socket_;
};

std::string ask(std::uint16_t port, std::string_view request) {
  const Client client(port);
  client.say(request);
  return client.listen();
}

TEST(MetricsServer, AnswersWithThePage) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string("a 1\n"); });
  const std::string text = ask(server.port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n")) << text;
  EXPECT_TRUE(says(text, "Content-Length: 4\r\n"));
  EXPECT_TRUE(text.ends_with("\r\n\r\na 1\n"));
}

TEST(MetricsServer, RefusesWhatIsNoScrape) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string(); });
  EXPECT_TRUE(says(ask(server.port(), "GET / HTTP/1.1\r\n\r\n"), "404"));
  EXPECT_TRUE(says(ask(server.port(), "POST /metrics HTTP/1.1\r\n\r\n"), "405"));
  EXPECT_TRUE(says(ask(server.port(), "GET /metrics\r\n\r\n"), "400"));
  EXPECT_TRUE(says(ask(server.port(), "\r\n\r\n"), "400"));
}

TEST(MetricsServer, EndsRequestsWithoutAnEnd) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string(); });
  const std::string text = ask(server.port(), std::string(MetricsServer::kMaxRequest, 'x'));
  EXPECT_TRUE(says(text, "431"));
}

TEST(MetricsServer, AClientThatSaysNothingIsLeftAndOthersAreServed) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string("b 2\n"); });
  const Client silent(server.port());
  const Client half(server.port());
  half.say("GET /met");
  EXPECT_TRUE(says(ask(server.port(), "GET /metrics HTTP/1.0\r\n\r\n"), "b 2"));
  EXPECT_EQ(silent.listen(), "");
}

TEST(MetricsServer, IdleClientsDoNotHoldOthersUp) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string("b 2\n"); });
  std::deque<Client> idle;
  for (int i = 0; i < 8; ++i) idle.emplace_back(server.port());
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_TRUE(says(ask(server.port(), "GET /metrics HTTP/1.0\r\n\r\n"), "b 2"));
  // One after the other, each client would have had a second.
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(6));
}

TEST(MetricsServer, EndsAtOnceWhileAClientKeepsIt) {
  auto server =
      std::make_unique<MetricsServer>("127.0.0.1", std::uint16_t{0}, [] { return std::string(); });
  const Client silent(server->port());
  server.reset();
  EXPECT_EQ(silent.listen(), "");
}

TEST(MetricsServer, SaysWhenThePortIsTaken) {
  const MetricsServer server("127.0.0.1", 0, [] { return std::string(); });
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] {
                     MetricsServer("127.0.0.1", server.port(), [] { return std::string(); });
                   }),
                   std::to_string(server.port())));
}

TEST(RunMetrics, CountImagesStepsAndQueues) {
  RunConfig config;
  config.batch_size = 32;
  config.num_gpus = 2;
  config.fake_location = "queue:crop=center";
  double waited_s = 1.25;
  RunMetrics metrics(config, [&] {
    return std::vector<QueueGauge>{{.name = "host ring",
                                    .slots = 3,
                                    .filled = 2,
                                    .producer_wait_s = 0.5,
                                    .consumer_wait_s = waited_s}};
  });
  metrics.window_begins();
  for (const double seconds : {0.004, 0.005, 0.02, 30.0}) metrics.step({.seconds = seconds});
  const std::string page = metrics.page();
  for (const char* line :
       {"# TYPE penstock_images_total counter\n"
        "penstock_images_total{feeder=\"queue\",model=\"resnet50\"} 256\n",
        "# TYPE penstock_step_seconds histogram\n"
        "penstock_step_seconds_bucket{feeder=\"queue\",model=\"resnet50\",le=\"0.001\"} 0\n",
        ",le=\"0.005\"} 2\n", ",le=\"0.025\"} 3\n", ",le=\"10\"} 3\n", ",le=\"+Inf\"} 4\n",
        "penstock_step_seconds_sum{feeder=\"queue\",model=\"resnet50\"} 30.029\n",
        "penstock_step_seconds_count{feeder=\"queue\",model=\"resnet50\"} 4\n",
        "penstock_queue_depth{feeder=\"queue\",model=\"resnet50\",queue=\"host ring\"} 2\n",
        "penstock_stall_seconds_total{feeder=\"queue\",model=\"resnet50\",queue=\"host ring\"} "
        "1.25\n",
        "penstock_backpressure_seconds_total{feeder=\"queue\",model=\"resnet50\",queue=\"host "
        "ring\"} 0.5\n"}) {
    EXPECT_TRUE(says(page, line)) << line << "\nin\n" << page;
  }
}

TEST(RunMetrics, TellTheShareOfTheWindowThatWaitsForInput) {
  double waited_s = 7;  // before the window
  RunMetrics metrics({}, [&] {
    return std::vector<QueueGauge>{{.name = "host ring", .consumer_wait_s = 100},
                                   {.name = "device ring 0", .consumer_wait_s = waited_s}};
  });
  const auto share = [&] {
    const std::string page = metrics.page(), name = "\npenstock_input_wait_share{";
    return page.substr(page.find("} ", page.find(name)) + 2, 4);
  };
  EXPECT_EQ(share().substr(0, 2), "0\n") << metrics.page();
  metrics.window_begins();
  waited_s = 8;
  metrics.step({.seconds = 4});
  EXPECT_EQ(share(), "0.25") << metrics.page();
}

}  // namespace
}  // namespace penstock

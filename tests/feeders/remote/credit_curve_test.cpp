// SPDX-License-Identifier: Apache-2.0
// Both ends by credit with CURVE keys; either end may be the server.
#include <gtest/gtest.h>

#include <exception>
#include <thread>

#include "dataflow/net/curve_certificate.h"
#include "feeders/remote/credit/credit_push.h"
#include "feeders/remote/receive/shared_frame_memory.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CreditCurve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
    net::write_certificate(consumer_, folder_.path(), "consumer");
    net::write_certificate(producer_, folder_ / "producers", "producer");
    net::write_certificate(stranger_, folder_.path(), "stranger");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string consumer_options() const {
    return "credit=2,endpoint=tcp://127.0.0.1:*,curve_secret=" + path("consumer.key_secret") +
           ",curve_allow=" + path("producers");
  }
  net::CurveSetup client(const std::string& secret) const {
    return net::read_curve({.secret = secret, .server_key = path("consumer.key"), .allow = {}});
  }
  static std::string endpoint_of(const Consumer& consumer) {
    const std::string note = consumer.notes().at(0);
    return "tcp://127.0.0.1" + note.substr(note.rfind(':'));
  }

  TempFolder folder_;
  const net::CurveKeys consumer_ = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
  const net::CurveKeys producer_ = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
  const net::CurveKeys stranger_ = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
};

/// Sends batches from shared memory until it is destroyed.
class KeyedServer {
 public:
  KeyedServer(const std::string& endpoint, net::CurveSetup curve)
      : push_(ring_, &memory_.pool(), net::parse_endpoint(endpoint),
              {.role = remote::ZmqSocketOptions::Role::dealer,
               .bind = false,
               .curve = std::move(curve)},
              clock_, probe_),
        feeding_([this](const std::stop_token& stop) {
          for (std::uint64_t i = 0; WriteLease lease = ring_.acquire(stop); ++i) {
            lease.await();
            fill_closed_form(lease.batch(), kSmall, i % 25);
            std::move(lease).publish();
          }
        }),
        sending_([this](const std::stop_token& stop) {
          try {
            push_.run({.timeout = 20s}, stop);
          } catch (...) {
            failure_ = std::current_exception();
          }
        }) {}
  /// Rethrows the exception with which it ended.
  void join() {
    sending_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  remote::SharedFrameMemory memory_{host_, kSmall.bytes(), 4};
  Device* const reader_ = &host_;
  BatchRing ring_{kSmall,         4,     memory_, MemoryKind::pinned, std::span(&reader_, 1),
                  Order::relaxed, clock_};
  remote::CreditPush push_;
  std::exception_ptr failure_;
  std::jthread feeding_, sending_;
};

TEST_F(CreditCurve, ProducersWithTheRightKeyComeInAndOthersAreTurnedAway) {
  Consumer consumer(consumer_options());
  consumer.start();
  const std::string endpoint = endpoint_of(consumer);
  KeyedServer stranger(endpoint, client(path("stranger.key_secret")));
  KeyedServer server(endpoint, client(path("producers/producer.key_secret")));
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_TRUE(reaches(consumer, "peers_refused", 1));
  EXPECT_EQ(consumer.counter("producers_welcomed"), 1);
  EXPECT_THROW(stranger.join(), ConfigError);  // it can never succeed
}

}  // namespace
}  // namespace penstock

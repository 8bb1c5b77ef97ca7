// SPDX-License-Identifier: Apache-2.0
// Both ends by credit with CURVE keys, whichever of them is the server.
#include <gtest/gtest.h>

#include <exception>
#include <thread>

#include "dataflow/curve_certificate.h"
#include "feeders/credit_push.h"
#include "feeders/shared_frame_memory.h"
#include "tests/feeders/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CreditCurve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
    write_certificate(consumer_, folder_.path(), "consumer");
    write_certificate(producer_, folder_ / "producers", "producer");
    write_certificate(stranger_, folder_.path(), "stranger");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string consumer_options() const {
    return "credit=2,endpoint=tcp://127.0.0.1:*,curve_secret=" + path("consumer.key_secret") +
           ",curve_allow=" + path("producers");
  }
  CurveSetup client(const std::string& secret) const {
    return read_curve({.secret = secret, .server_key = path("consumer.key"), .allow = {}});
  }
  static std::string endpoint_of(const Consumer& consumer) {
    const std::string note = consumer.notes().at(0);
    return "tcp://127.0.0.1" + note.substr(note.rfind(':'));
  }

  TempFolder folder_;
  const CurveKeys consumer_ = has_curve() ? make_curve_keys() : CurveKeys{};
  const CurveKeys producer_ = has_curve() ? make_curve_keys() : CurveKeys{};
  const CurveKeys stranger_ = has_curve() ? make_curve_keys() : CurveKeys{};
};

/// Sends batches from shared memory until it is destroyed.
class KeyedServer {
 public:
  KeyedServer(const std::string& endpoint, CurveSetup curve)
      : push_(ring_, &memory_.pool(), parse_endpoint(endpoint),
              {.role = ZmqSocketOptions::Role::dealer, .bind = false, .curve = std::move(curve)},
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
  /// What it ends with by itself.
  void join() {
    sending_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  SharedFrameMemory memory_{host_, kSmall.bytes(), 4};
  Device* const reader_ = &host_;
  BatchRing ring_{kSmall,         4,     memory_, MemoryKind::pinned, std::span(&reader_, 1),
                  Order::relaxed, clock_};
  CreditPush push_;
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
  EXPECT_THROW(stranger.join(), ConfigError);  // it never will
}

}  // namespace
}  // namespace penstock

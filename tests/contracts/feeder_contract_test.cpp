// SPDX-License-Identifier: Apache-2.0
// What every feeder of the table has to keep, whatever it is. A new one is tested by being entered;
// those whose options change where batches come from are tested with these as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <ostream>
#include <string>

#include "dataflow/host_device.h"
#include "tests/support/entry_names.h"
#include "tests/support/feeder_surroundings.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr BatchSpec kSpec{.images = 4, .image = {224, 224, 3}, .classes = 1000};
constexpr auto kDeadline = 20s;

/// kSpec, as the feeder's options make it.
BatchSpec shaped(const FeederEntry& entry, const Options& options) {
  BatchSpec batches = kSpec;
  if (entry.shape_batches != nullptr) entry.shape_batches(options, batches);
  return batches;
}

/// One feeder at work in a ring of its own.
class AtWork {
 public:
  AtWork(const FeederEntry& entry, const std::string& text, const std::string& directory,
         std::size_t slots, Nanoseconds timeout = 15s)
      : parts_(parse_component(text)),
        options_(parts_.name, entry.options, parts_),
        spec_(shaped(entry, options_)),
        ring_(spec_, slots, device_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        feeder_(entry.make(FeederContext{.spec = spec_,
                                         .device = device_,
                                         .clock = clock_,
                                         .options = options_,
                                         .data = {.directory = directory},
                                         .probe = probe_,
                                         .timeout = timeout,
                                         .threads = 2,
                                         .slots = static_cast<std::int32_t>(slots)})) {
    done_ =
        std::async(std::launch::async, [this] { run_to_end(*feeder_, ring_, stop_.get_token()); });
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  ~AtWork() {
    stop_.request_stop();
    done_.wait();
  }

  const BatchSpec& spec() const { return spec_; }
  BatchRing& ring() { return ring_; }
  ReadLease next() { return ring_.next(0, {}); }
  bool ends_in_time() { return done_.wait_for(kDeadline) == std::future_status::ready; }
  void stop() { stop_.request_stop(); }

 private:
  SteadyClock clock_;
  HostDevice device_{clock_};
  Device* const reader_ = &device_;
  const ComponentText parts_;
  const Options options_;
  const BatchSpec spec_;
  Probe probe_;
  BatchRing ring_;
  std::unique_ptr<Feeder> feeder_;
  std::stop_source stop_;
  std::future<void> done_;
};

struct Variant {
  const FeederEntry* entry = nullptr;
  std::string options;  ///< besides those that its surroundings need; none where it needs some

  friend void PrintTo(const Variant& variant, std::ostream* out) {
    *out << variant.entry->name << variant.options;
  }
};

class FeederContract : public ::testing::TestWithParam<Variant> {
 protected:
  const FeederEntry& entry() const { return *GetParam().entry; }
  std::unique_ptr<AtWork> start(std::size_t slots) {
    return std::make_unique<AtWork>(entry(), around_.text() + GetParam().options,
                                    around_.directory().string(), slots);
  }
  FeederSurroundings around_{entry(), kSpec.images, PENSTOCK_PROGRAM};
};

TEST_P(FeederContract, FillsWholeBatchesWithLabelsInRange) {
  const auto feeder = start(3);
  for (std::uint64_t count = 0; count < 8; ++count) {
    const ReadLease lease = feeder->next();
    ASSERT_TRUE(lease);
    const Batch& batch = lease.batch();
    EXPECT_EQ(batch.valid, kSpec.images);
    EXPECT_EQ(batch.sequence, count);
    for (const std::int32_t label : batch.labels) {
      EXPECT_GE(label, 0);
      EXPECT_LT(label, kSpec.classes);
    }
    for (std::size_t image = 0; image < 4; ++image) {
      const std::size_t bytes = feeder->spec().row_bytes();
      const auto row = batch.pixels.subspan(image * bytes, bytes);
      const auto [low, high] = std::minmax_element(row.begin(), row.end());
      EXPECT_NE(*low, *high) << "image " << image << " of batch " << count << " is one flat colour";
    }
  }
}

TEST_P(FeederContract, WorksWithOneSlot) {
  const auto feeder = start(1);
  for (int count = 0; count < 5; ++count) ASSERT_TRUE(feeder->next()) << count;
}

TEST_P(FeederContract, SurvivesAReaderThatHoldsBatchesBack) {
  const auto feeder = start(3);
  for (int round = 0; round < 4; ++round) {
    ReadLease first = feeder->next(), second = feeder->next(), third = feeder->next();
    ASSERT_TRUE(first && second && third);
    EXPECT_NE(first.batch().slot, third.batch().slot);
    { const ReadLease gone = std::move(second); }
    { const ReadLease gone = std::move(first); }
  }
}

TEST_P(FeederContract, StopsInTimeWhileTheRingIsFull) {
  const auto feeder = start(2);
  ASSERT_TRUE(feeder->next());
  feeder->stop();
  EXPECT_TRUE(feeder->ends_in_time());
}

TEST_P(FeederContract, StopsInTimeBeforeAnybodyReads) {
  const auto feeder = start(2);
  feeder->stop();
  EXPECT_TRUE(feeder->ends_in_time());
}

TEST_P(FeederContract, EndsWhenItsReaderLeaves) {
  const auto feeder = start(2);
  ASSERT_TRUE(feeder->next());
  feeder->ring().close();
  EXPECT_TRUE(feeder->ends_in_time());
}

TEST_P(FeederContract, ItsFailureReachesTheReader) {
  const FeederEntry& entry = this->entry();
  if (entry.reads_files) {
    const std::string text = std::string(entry.name) + GetParam().options;
    EXPECT_THROW(AtWork(entry, text, "/no/such/folder", 2), ConfigError);
  } else if (entry.needs_producer) {
    const std::string endpoint = "ipc://" + (around_.directory() / "nobody").string();
    AtWork feeder(entry, std::string(entry.name) + ":endpoint=" + endpoint, "", 2, 100ms);
    EXPECT_THROW(static_cast<void>(feeder.next()), TimeoutError);
  } else {
    // Nothing outside that could fail: what is left is a wrong option.
    EXPECT_THROW(AtWork(entry, std::string(entry.name) + ":no_such_option=1", "", 2), ConfigError);
  }
}

std::vector<Variant> variants() {
  std::vector<Variant> result;
  for (const FeederEntry* entry : feeder_table().entries) result.push_back({entry, ""});
  for (const auto& [name, options] : {std::pair{"host", ":img_per_s=400"},
                                      {"host", ":normalise=f16"},
                                      {"messages", ":format=zmq_op"},
                                      {"messages", ":receivers=3,checksum=true"},
                                      {"queue", ":normalise=f32"},
                                      {"queue", ":source=memory"},
                                      {"queue", ":decode=full"},
                                      {"queue", ":decode=raw,flip=true"},
                                      {"queue", ":extra_us=200"}}) {
    if (const FeederEntry* entry = match_entry(feeder_table(), name)) {
      result.push_back({entry, options});
    }
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, FeederContract, ::testing::ValuesIn(variants()),
                         [](const auto& test) {
                           return test_name(std::string(test.param.entry->name) +
                                            test.param.options);
                         });

}  // namespace
}  // namespace penstock

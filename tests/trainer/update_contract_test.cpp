// SPDX-License-Identifier: Apache-2.0
// What every update of the table has to keep, whatever it is.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/entry_names.h"
#include "tests/support/rank_threads.h"
#include "trainer/collectives/threads.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Three gradients that differ by rank: 1, 10, 100 times (rank + 1).
class FixedGradients final : public Executable {
 public:
  explicit FixedGradients(std::int32_t rank) {
    for (const float scale : {1.F, 10.F, 100.F})
      values_.push_back(scale * static_cast<float>(rank + 1));
  }
  Tensor gradients() noexcept override { return {values_.data(), values_.size()}; }
  void run(const Batch&, Stream&, StepResult&) override {}
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
};

class UpdateContract : public ::testing::TestWithParam<const UpdateEntry*> {
 protected:
  const UpdateEntry& entry() const { return *GetParam(); }
  std::unique_ptr<UpdateStrategy> make(Collective& collective) const {
    const Options options(entry().name, entry().options, {});
    return entry().make({collective, options});
  }
  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_P(UpdateContract, GradientsAreWhatItsAgreementSays) {
  for (const std::int32_t ranks : {1, 2, 3}) {
    const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device_);
    ThreadsGroup group(devices, clock_, {});
    run_ranks(ranks, [&](std::int32_t rank) {
      const std::unique_ptr<Collective> collective = group.join(rank);
      const std::unique_ptr<UpdateStrategy> update = make(*collective);
      const std::unique_ptr<Stream> stream = device_.make_stream();
      FixedGradients gradients(rank);
      update->finish_step(gradients, *stream);
      const int share =
          entry().agreement == Agreement::identical ? ranks * (ranks + 1) / 2 : rank + 1;
      const auto factor = static_cast<float>(share);
      EXPECT_EQ(gradients.values(), (std::vector{1 * factor, 10 * factor, 100 * factor}));
    });
  }
}

TEST_P(UpdateContract, ARankThatEndsEarlyEndsAll) {
  Device* const devices[] = {&device_, &device_};
  std::stop_source stop;
  ThreadsGroup group(devices, clock_, stop.get_token());
  std::future<bool> other = std::async(std::launch::async, [&] {
    const std::unique_ptr<Collective> collective = group.join(0);
    const std::unique_ptr<UpdateStrategy> update = make(*collective);
    const std::unique_ptr<Stream> stream = device_.make_stream();
    FixedGradients gradients(0);
    try {
      update->finish_step(gradients, *stream);
      return entry().agreement == Agreement::own;  // only those that need nobody may get through
    } catch (const Error&) {
      return true;
    }
  });
  stop.request_stop();
  ASSERT_EQ(other.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(other.get());
}

std::vector<const UpdateEntry*> entries() {
  return {update_table().entries.begin(), update_table().entries.end()};
}
INSTANTIATE_TEST_SUITE_P(All, UpdateContract, ::testing::ValuesIn(entries()),
                         [](const auto& test) { return test_name(test.param->name); });

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// Tests which exchange is chosen for ranks, and the note about it.
#include "trainer/backends/gpu/exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/collective.h"

namespace penstock::gpu {
namespace {

struct Situation {
  const char* requested;
  std::vector<std::int32_t> gpus;  ///< the GPU of each rank
  bool has_nccl = true, reach_each_other = true;
};

/// The note, or the text of the exception.
std::string answer(const Situation& situation) {
  HostDriverLibrary machine({.devices = 4,
                             .reach_each_other = situation.reach_each_other,
                             .connects = situation.has_nccl});
  std::vector<std::unique_ptr<Driver>> owned;
  std::vector<Driver*> drivers;
  for (const std::int32_t gpu : situation.gpus) {
    owned.push_back(machine.open(gpu));
    drivers.push_back(owned.back().get());
  }
  try {
    const ExchangeChoice choice =
        choose_exchange(parse_exchange(situation.requested), situation.gpus, drivers, machine);
    EXPECT_EQ(choice.exchange == Exchange::nccl,
              choice.note.find("through NCCL") != std::string::npos);
    return choice.note;
  } catch (const ConfigError& error) {
    return std::string("config: ") + error.what();
  } catch (const Unavailable& error) {
    return std::string("unavailable: ") + error.what();
  }
}

TEST(Exchange, IsChosenByWhereTheRanksAre) {
  EXPECT_EQ(answer({.requested = "auto", .gpus = {0, 0}}),
            "ranks exchange by built-in sums and copies (NCCL refuses ranks that share a GPU)");
  EXPECT_EQ(answer({.requested = "auto", .gpus = {0, 1, 2}}),
            "ranks exchange through NCCL, with one GPU per rank");
  EXPECT_EQ(answer({.requested = "auto", .gpus = {0, 1, 0, 1}}),
            "ranks exchange by built-in sums and copies (NCCL refuses ranks that share a GPU)");
  EXPECT_EQ(answer({.requested = "auto", .gpus = {0, 1}, .has_nccl = false}),
            "ranks exchange by built-in sums and copies (the host has no library that connects "
            "GPUs)");
  EXPECT_EQ(answer({.requested = "copies", .gpus = {0, 1}}),
            "ranks exchange by built-in sums and copies (gpu:exchange=copies)");
  EXPECT_EQ(answer({.requested = "nccl", .gpus = {1, 0}}),
            "ranks exchange through NCCL, with one GPU per rank");
  EXPECT_EQ(answer({.requested = "host", .gpus = {0, 1}}),
            "ranks exchange through the host's memory (gpu:exchange=host)");
  for (const char* requested : {"auto", "copies", "nccl", "host"}) {
    EXPECT_EQ(answer({.requested = requested, .gpus = {0}, .has_nccl = false}), "") << requested;
  }
}

TEST(Exchange, SaysWhatMakesItImpossible) {
  EXPECT_EQ(answer({.requested = "nccl", .gpus = {0, 1, 0}}),
            "config: NCCL is asked for, but ranks 0 and 2 share GPU 0, which NCCL refuses: use "
            "--num-gpus with one rank a GPU, or gpu:exchange=copies");
  EXPECT_EQ(answer({.requested = "nccl", .gpus = {0, 1}, .has_nccl = false}),
            "unavailable: the host has no library that connects GPUs");
  EXPECT_EQ(answer({.requested = "copies", .gpus = {0, 1}, .reach_each_other = false}),
            "unavailable: ranks cannot exchange by copies: GPU 0 cannot reach the memory of GPU 1; "
            "use gpu:exchange=nccl");
  EXPECT_EQ(
      answer({.requested = "auto", .gpus = {0, 1}, .has_nccl = false, .reach_each_other = false}),
      "unavailable: ranks cannot exchange by copies: GPU 0 cannot reach the memory of GPU 1; and "
      "the host has no library that connects GPUs");
  EXPECT_EQ(answer({.requested = "auto", .gpus = {0, 1, 0}, .reach_each_other = false}),
            "unavailable: ranks cannot exchange by copies: GPU 0 cannot reach the memory of GPU 1; "
            "use one rank a GPU, and NCCL does it");
  EXPECT_EQ(answer({.requested = "copies", .gpus = std::vector<std::int32_t>(17)}),
            "config: --num-gpus is 17: at most 16 ranks can exchange by copies; use fewer "
            "ranks");
  EXPECT_EQ(answer({.requested = "ring", .gpus = {0, 1}}),
            "config: gpu:exchange is 'ring'; expected auto, copies, nccl or host");
}

TEST(Exchange, ASpecThatAsksForNcclIsTheSameAsTheOptionAndRefusesOtherOnes) {
  const ExchangeSpec spec{.nccl = true};
  EXPECT_EQ(requested_exchange(Exchange::automatic, {}), Exchange::automatic);
  EXPECT_EQ(requested_exchange(Exchange::copies, {}), Exchange::copies);
  EXPECT_EQ(requested_exchange(Exchange::automatic, spec), Exchange::nccl);
  EXPECT_EQ(requested_exchange(Exchange::nccl, spec), Exchange::nccl);
  for (const auto& [option, name] :
       {std::pair{Exchange::copies, "copies"}, {Exchange::host, "host"}}) {
    EXPECT_EQ(
        thrown_by<ConfigError>([&, option = option] { requested_exchange(option, spec); }),
        "--all-reduce-spec is nccl, and gpu:exchange is " + std::string(name) + "; leave one out");
  }
}

TEST(GpuBackend, RanksGoRoundTheGpusAndTheNoteSaysHowTheyExchange) {
  SteadyClock clock;
  for (const bool has_nccl : {true, false}) {
    const Options options("gpu", kOptions, parse_component("gpu:replicas=2"));
    const HostMachineOptions machine{.devices = 2, .connects = has_nccl};
    GpuBackend backend(std::make_shared<HostDriverLibrary>(machine), options);
    EXPECT_EQ(backend.device_count(), 4);
    std::vector<std::unique_ptr<Device>> owned;
    std::vector<Device*> devices;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      owned.push_back(backend.open(rank));
      devices.push_back(owned.back().get());
      EXPECT_EQ(static_cast<GpuDevice*>(devices.back())->driver().facts().name,
                "host " + std::to_string(rank % 2));
    }
    EXPECT_TRUE(backend.notes().empty());
    const auto all = backend.make_group(devices, {}, clock, {});
    const auto two = backend.make_group(std::span(devices).first(2), {}, clock, {});
    EXPECT_EQ(two->join(1)->world().size, 2);
    EXPECT_EQ(
        backend.notes(),
        (std::vector<std::string>{
            "ranks exchange by built-in sums and copies (NCCL refuses ranks that share a GPU)",
            has_nccl ? "ranks exchange through NCCL, with one GPU per rank"
                     : "ranks exchange by built-in sums and copies (the host has no library that "
                       "connects GPUs)"}));
  }
}

}  // namespace
}  // namespace penstock::gpu

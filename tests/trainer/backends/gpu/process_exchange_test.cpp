// SPDX-License-Identifier: Apache-2.0
// Tests how ranks of several processes agree on an exchange. Each process is a thread here.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/rank_threads.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/exchange.h"
#include "trainer/collectives/threads.h"

namespace penstock::gpu {
namespace {

constexpr std::byte kMark{0xA7};

/// A machine whose communicator ids begin with its number. A machine without a number has no NCCL.
class Machine final : public HostDriverLibrary {
 public:
  explicit Machine(const HostMachineOptions& options, std::optional<std::uint8_t> number)
      : HostDriverLibrary(options), number_(number) {}
  CommunicatorId make_communicator_id() override {
    if (!number_) throw Unavailable("libnccl.so.2 cannot be loaded");
    CommunicatorId id;
    id.bytes.front() = std::byte{*number_};
    id.bytes.back() = kMark;
    return id;
  }

 private:
  const std::optional<std::uint8_t> number_;
};

/// The place where processes exchange their texts.
class Room {
 public:
  explicit Room(std::size_t processes)
      : texts_(processes), barrier_(static_cast<std::ptrdiff_t>(processes)) {}
  ProcessRanks ranks(std::int32_t process) {
    return {.first = process,
            .size = static_cast<std::int32_t>(texts_.size()),
            .all_gather =
                [this, process](std::string_view text) {
                  texts_[static_cast<std::size_t>(process)] = text;
                  barrier_.arrive_and_wait();
                  const std::vector<std::string> all = texts_;
                  barrier_.arrive_and_wait();
                  return all;
                },
            .make_host_group = {}};
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

struct Process {
  std::string bus;  ///< the GPU of its rank
  bool has_nccl = true;
};

/// The choice of each process: its note with the mark of the id, or the text of the exception.
std::vector<std::string> answers(const char* requested, const std::vector<Process>& processes) {
  Room room(processes.size());
  std::vector<std::string> answers(processes.size());
  run_ranks(static_cast<std::int32_t>(processes.size()), [&](std::int32_t rank) {
    const Process& process = processes[static_cast<std::size_t>(rank)];
    std::string& answer = answers[static_cast<std::size_t>(rank)];
    std::optional<std::uint8_t> number;
    if (process.has_nccl) number = static_cast<std::uint8_t>(10 + rank);
    Machine machine({}, number);
    try {
      const ExchangeChoice choice = choose_process_exchange(
          parse_exchange(requested), std::span(&process.bus, 1), room.ranks(rank), machine);
      answer = choice.note;
      if (choice.exchange == Exchange::nccl) {
        EXPECT_EQ(choice.id.bytes.back(), kMark);
        answer += ", id " + std::to_string(std::to_integer<int>(choice.id.bytes.front()));
      } else {
        EXPECT_EQ(choice.exchange, Exchange::host);
      }
    } catch (const ConfigError& error) {
      answer = std::string("config: ") + error.what();
    } catch (const Unavailable& error) {
      answer = std::string("unavailable: ") + error.what();
    }
  });
  return answers;
}

std::vector<std::string> three_times(const std::string& text) { return {text, text, text}; }

TEST(ProcessExchange, AllChooseNcclWithTheIdOfTheFirstWhereEachHasAGpu) {
  for (const char* requested : {"auto", "nccl"}) {
    EXPECT_EQ(answers(requested, {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}}),
              three_times("ranks exchange through NCCL, with one GPU per rank, id 10"));
  }
}

TEST(ProcessExchange, AllGoThroughTheHostWhereSomeShareAGpuOrLackNccl) {
  const std::vector<Process> sharing{{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:01:00.0"}};
  EXPECT_EQ(answers("auto", sharing),
            three_times("ranks exchange through the host's memory (ranks 0 and 2 share a GPU, "
                        "0000:01:00.0, which NCCL refuses)"));
  const std::vector<Process> lacking{{"0000:01:00.0"}, {"0000:02:00.0", false}, {"0000:03:00.0"}};
  EXPECT_EQ(answers("auto", lacking),
            three_times("ranks exchange through the host's memory (process 1: libnccl.so.2 cannot "
                        "be loaded)"));
  EXPECT_EQ(answers("nccl", lacking),
            three_times("unavailable: NCCL is asked for, and process 1: libnccl.so.2 cannot be "
                        "loaded; give each rank a GPU, or use gpu:exchange=host"));
  EXPECT_EQ(answers("host", sharing),
            three_times("ranks exchange through the host's memory (gpu:exchange=host)"));
}

TEST(ProcessExchange, CopiesAreForOneProcess) {
  const std::string answer = answers("copies", {{"0000:01:00.0"}}).front();
  EXPECT_EQ(answer.find("config: gpu:exchange is copies, which is for ranks of one process"), 0U)
      << answer;
}

TEST(ProcessExchange, TheBackendsGroupCountsRanksOfAllProcesses) {
  Room room(2);
  const auto machine = std::make_shared<Machine>(HostMachineOptions{.devices = 2}, 7);
  run_ranks(2, [&](std::int32_t rank) {
    SteadyClock clock;
    for (const bool through_host : {false, true}) {
      const std::string text = through_host ? "gpu:exchange=host" : "gpu";
      GpuBackend backend(machine, Options("gpu", kOptions, parse_component(text)));
      const std::unique_ptr<Device> device = backend.open(rank);
      Device* const devices[] = {device.get()};
      ProcessRanks ranks = room.ranks(rank);
      // The device of both ranks, because each process is a thread here.
      Device* const all[] = {device.get(), device.get()};
      ranks.make_host_group = [&] {
        return std::make_unique<collectives::ThreadsGroup>(all, clock, std::stop_token());
      };
      const auto group = backend.make_group(devices, {.processes = &ranks}, clock, {});
      EXPECT_EQ(group->join(rank)->world().rank, rank);
      EXPECT_EQ(group->join(rank)->world().size, 2);
      ASSERT_EQ(backend.notes().size(), 1U);
      EXPECT_NE(backend.notes()[0].find(through_host ? "host's memory" : "NCCL"),
                std::string::npos);
    }
  });
}

}  // namespace
}  // namespace penstock::gpu

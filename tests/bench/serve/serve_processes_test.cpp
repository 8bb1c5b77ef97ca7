// SPDX-License-Identifier: Apache-2.0
// `penstock serve --processes N` and `--encoded`: each image is sent once, and no process remains.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "bench/serve/serve_processes.h"
#include "dataflow/error.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/message_puller.h"
#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr int kImages = 41, kProcesses = 3;
constexpr BatchSpec kSpec{.images = 4, .classes = 1000};

class ServeProcesses : public testing::Test {
 protected:
  ServeProcesses() {
    for (int i = 0; i < kImages; ++i) {
      folder_.write("class" + std::to_string(i % 2) + "/" + std::to_string(100 + i) + ".JPEG",
                    encode_jpeg(make_test_image(24, 24, 3, static_cast<std::uint64_t>(i + 1))));
    }
  }

  ChildCommand serve(const Words& more) const {
    return {.arguments = joined({PENSTOCK_PROGRAM, "serve", "--encoded", "--model=null",
                                 "--batch-size=4", "--data-dir=" + folder_.path().native(),
                                 "--endpoint=" + endpoint_, "--timeout=20s"},
                                more),
            .timeout = 50s};
  }

  /// Gives `take` messages until it answers false. One that does not come in time fails the test.
  template <typename Take>
  void take_messages(Take take) {
    while (true) {
      const FrameList frames = puller_.next();
      if (frames.empty()) return;
      const auto views = views_of(frames);
      if (!take(remote::parse_framed(views))) return;
    }
  }
  /// Takes messages until all producers have announced themselves; returns their process ids.
  std::set<pid_t> await_producers() {
    std::set<pid_t> pids;
    take_messages([&](const remote::FramedMessage& message) {
      if (message.header.kind == remote::FramedKind::hello) {
        pids.insert(static_cast<pid_t>(remote::parse_framed_hello(message).pid));
      }
      return pids.size() < kProcesses;
    });
    EXPECT_EQ(pids.size(), std::size_t{kProcesses});
    return pids;
  }

  /// They are not children of this process, so only the kernel knows.
  static void expect_gone(const std::set<pid_t>& pids) {
    for (const pid_t pid : pids) EXPECT_TRUE(await([&] { return !is_alive(pid); })) << pid;
  }
  /// Processes that have ended may wait to be reaped (Z), or be about to go (X).
  static bool is_alive(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(status, text, '\0');  // a process that goes meanwhile leaves it empty
    const std::size_t name_end = text.rfind(") ");
    return name_end != std::string::npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
  }

  const TempFolder folder_;
  const TempFolder socket_folder_;
  const std::string endpoint_ = "ipc://" + (socket_folder_ / "feed").native();
  MessagePuller puller_{endpoint_};
};

TEST_F(ServeProcesses, EachImageIsSentOnce) {
  ChildProcess child(serve({"--processes=3", "--epochs=1"}));
  std::map<std::string, int> times;
  std::set<std::uint64_t> producers;
  std::uint64_t said = 0;
  int ends = 0;
  take_messages([&](const remote::FramedMessage& message) {
    producers.insert(message.header.producer);
    if (message.header.kind == remote::FramedKind::end) {
      ++ends;
      said += message.header.images_before;
    } else if (message.header.kind == remote::FramedKind::batch) {
      const remote::FramedImages images(message, kSpec);
      for (std::size_t i = 0; i < images.size(); ++i) {
        const auto file = images.file(i);
        ++times[{reinterpret_cast<const char*>(file.data()), file.size()}];
      }
    }
    return ends < kProcesses;
  });
  EXPECT_EQ(producers.size(), std::size_t{kProcesses});
  EXPECT_EQ(said, std::uint64_t{kImages});
  EXPECT_EQ(times.size(), std::size_t{kImages});
  for (const auto& [file, count] : times) EXPECT_EQ(count, 1);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "3 of 3 processes in all sent 12 batches, 41 images"));
  EXPECT_FALSE(says(exit.last_words, "given twice"));
}

TEST_F(ServeProcesses, AnInterruptEndsAll) {
  ChildProcess child(serve({"--processes=3"}));
  const std::set<pid_t> pids = await_producers();
  const ChildExit& exit = child.stop();  // SIGINT to the first process and its group
  EXPECT_EQ(exit.code, 130) << exit.last_words;
  expect_gone(pids);
  EXPECT_TRUE(says(exit.last_words, "3 of 3 processes in all"));
}

TEST_F(ServeProcesses, ADeathIsReportedAndEndsAll) {
  ChildProcess child(serve({"--processes=3"}));
  const std::set<pid_t> pids = await_producers();
  ASSERT_FALSE(pids.empty());
  kill(*pids.begin(), SIGKILL);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "was ended by signal 9"));
  expect_gone(pids);
}

TEST_F(ServeProcesses, NoChildOutlivesItsParent) {
  ChildProcess child(serve({"--processes=3"}));
  const std::set<pid_t> pids = await_producers();
  kill(child.pid(), SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  expect_gone(pids);
}

TEST_F(ServeProcesses, BatchesAreSharedOut) {
  ChildProcess child(serve({"--processes=3", "--num-batches=4", "--img-per-s=3000"}));
  int batches = 0, ends = 0;
  take_messages([&](const remote::FramedMessage& message) {
    ends += message.header.kind == remote::FramedKind::end ? 1 : 0;
    batches += message.header.kind == remote::FramedKind::batch ? 1 : 0;
    return ends < kProcesses;
  });
  EXPECT_EQ(batches, 4);
  EXPECT_EQ(child.wait().code, 0);
}

TEST_F(ServeProcesses, InvalidCombinationsAreRefused) {
  const auto expect_refusal = [&](const Words& more, std::string_view why) {
    const ChildExit exit = exit_of(serve(more).arguments);
    EXPECT_EQ(exit.code, 2) << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, why));
  };
  expect_refusal({"--processes=3", "--bind"}, "let the consumer bind");
  expect_refusal({"--processes=3", "--num-batches=2"}, "fewer --processes");
  expect_refusal({"--processes=0"}, "expected a whole number from 1 to 1024");
  expect_refusal({"--shard=4/4"}, "such as 0/4 to 3/4");
  expect_refusal({"--fake-location=cpu"}, "makes pixels");
  expect_refusal({"--fake-location=queue:crop=center"}, "zmq-consume:encoded=true,crop=center");
  expect_refusal({"--shared-memory"}, "use --encoded --credit");
  expect_refusal({"--format=zmq_op"}, "of the format framed");
  expect_refusal({"--noencoded", "--credit", "--checksum"}, "without checksums");
  expect_refusal({"--noencoded", "--epochs=1"}, "--epochs without --encoded");
}

TEST(ServeReport, TheSlowerSideIsNamed) {
  serve::ServeTotals totals{.batches = 10, .images = 40, .bytes = 4'000'000, .seconds = 2};
  totals.consumers_s = 1.5;
  totals.feeder_s = 0.4;
  EXPECT_EQ(describe(totals, {}),
            "sent 10 batches, 40 images, 4.0 MB: 20.0 img/s, 2.0 MB/s in 2.0 s; 75 % of it waiting "
            "for consumers, 20 % for batches to send: the consumers are the slower side");
  std::swap(totals.consumers_s, totals.feeder_s);
  EXPECT_TRUE(says(describe(totals, {}), "this producer is the slower side"));
  totals.feeder_s = 0.1;
  totals.consumers_s = 0;
  EXPECT_TRUE(says(describe(totals, {.paced = true}), "--img-per-s is the limit"));
  EXPECT_TRUE(says(describe(totals, {}), "neither side waits"));
  EXPECT_EQ(describe(serve::ServeTotals{}, {}),
            "sent 0 batches, 0 images, 0.0 MB: 0.0 img/s, 0.0 MB/s in 0.0 s");
}

TEST(ServeReport, TotalsOfProcessesAddUp) {
  const serve::ServeTotals one{
      .batches = 1, .images = 4, .bytes = 100, .seconds = 2, .consumers_s = 1},
      other{.batches = 2, .images = 8, .bytes = 300, .seconds = 3, .feeder_s = 2};
  EXPECT_EQ(serve::totals_from_line(serve::to_line(other)), other);
  EXPECT_THROW(serve::totals_from_line("1 2 three"), Error);
  EXPECT_EQ(serve::sum_of(std::vector{one, other}), (serve::ServeTotals{.batches = 3,
                                                                        .images = 12,
                                                                        .bytes = 400,
                                                                        .seconds = 3,
                                                                        .consumers_s = 0.5,
                                                                        .feeder_s = 1}));
}

}  // namespace
}  // namespace penstock

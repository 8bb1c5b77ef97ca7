// SPDX-License-Identifier: Apache-2.0
// Python loaders in child processes: what arrives in the ring, and how faults are reported.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/values/float16.h"
#include "feeders/feeder.h"
#include "tests/support/patience.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A stand-in for PyTorch's DataLoader: its fetcher, worker processes that are forked, and pinning.
/// A sample takes 2 ms, a batch of two 1 ms more, 3 ms on its way and 1 ms for pinning.
constexpr const char* kTorch = R"(
import multiprocessing, os, sys, time, types

def module(name):
    made = sys.modules["torch.utils.data" + name] = types.ModuleType("torch.utils.data" + name)
    return made

data, fetching, working, pinning, loading = map(
    module, ("", "._utils.fetch", "._utils.worker", "._utils.pin_memory", ".dataloader"))
worker = None
data.get_worker_info = lambda: worker

class _MapDatasetFetcher:
    def __init__(self, dataset, collate_fn):
        self.dataset, self.collate_fn = dataset, collate_fn

    def fetch(self, index):
        return self.collate_fn([self.dataset[i] for i in index])

def pin_memory(batch, device=None):
    time.sleep(0.001)
    return batch

def _worker_loop(fetcher, out):
    while True:
        batch = fetcher.fetch([0, 1])
        time.sleep(0.003)
        out.send(batch)

class _MultiProcessingDataLoaderIter:
    def __init__(self, loader):
        global worker
        self.loader, self.pipes, self.turn = loader, [], 0
        for number in range(loader.num_workers):
            mine, childs = multiprocessing.Pipe(duplex=False)
            if os.fork() == 0:
                worker = types.SimpleNamespace(id=number)
                working._worker_loop(loader.fetcher(), childs)
            self.pipes.append(mine)

    def __iter__(self):
        return self

    def _next_data(self):
        batch = self.pipes[self.turn % len(self.pipes)].recv()
        self.turn += 1
        return pinning.pin_memory(batch, None) if self.loader.pin_memory else batch

    def __next__(self):
        return DataLoader.batch(self._next_data())

fetching._MapDatasetFetcher = _MapDatasetFetcher
working._worker_loop = _worker_loop
pinning.pin_memory = pin_memory
loading._MultiProcessingDataLoaderIter = _MultiProcessingDataLoaderIter

class Samples:
    def __getitem__(self, index):
        time.sleep(0.002)
        return index

class Nested:
    """A data set with a loader of its own, which loads in the worker."""
    def __init__(self):
        self.inner = _MapDatasetFetcher(Samples(), lambda samples: samples)

    def __getitem__(self, index):
        return self.inner.fetch([index])[0]

def collate(samples):
    time.sleep(0.001)
    return samples

class DataLoader:
    prefetch_factor = 2

    def __init__(self, num_workers, pin_memory, dataset):
        self.num_workers, self.pin_memory, self.dataset = num_workers, pin_memory, dataset

    def fetcher(self):
        return _MapDatasetFetcher(self.dataset, collate)

    def __iter__(self):
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else self.load_here()

    def load_here(self):
        fetcher = self.fetcher()
        while True:
            yield self.batch(fetcher.fetch([0, 1]))

    @staticmethod
    def batch(labels):
        return memoryview(bytes(2 * 4 * 6 * 3)).cast("B", (2, 4, 6, 3)), list(labels)

def make_loader(num_workers, pin_memory=False):
    return DataLoader(num_workers, pin_memory, Samples())

def nested(num_workers):
    return DataLoader(num_workers, False, Nested())

def generator(num_workers):
    yield from make_loader(num_workers)
)";

/// Loaders that need no package. Image i of the data has bytes i and label i.
constexpr const char* kLoaders = R"(
import array, os, time

H, W = 4, 6

def batch(first, images, channels=3, kind="B"):
    pixels = b"".join(bytes([(first + i) % 256]) * (H * W * channels) for i in range(images))
    view = memoryview(pixels).cast("B", (images, H, W, channels))
    return view, array.array("i", range(first, first + images))

def counting(images=2, batches=6):
    return [batch(images * i, images) for i in range(batches)]

def generator():
    yield batch(0, 2)
    yield batch(2, 2)

def partial():
    return [batch(0, 2), batch(2, 2), batch(4, 1)]

def named():
    class Batch:
        pass
    return [{"name": "x", "image": batch(2 * i, 2)[0], "label": [2 * i, 2 * i + 1]} for i in range(3)]

class DataLoader:
    """As PyTorch's, as far as settings are concerned."""
    prefetch_factor = 2
    pin_memory = False

    def __init__(self, workers):
        self.num_workers = workers

    def __iter__(self):
        return iter([batch(0, 2)])

def with_workers(workers):
    return DataLoader(workers)

def unlabelled():
    return [batch(0, 2)[0]]

def wrong_label():
    pixels, labels = batch(0, 2)
    return [(pixels, array.array("i", [1, 1000]))]

def empty():
    return []

def number():
    return 5

def text():
    return ["a", "b"]

def three_dimensions():
    return [memoryview(bytes(24)).cast("B", (2, 3, 4))]

def five_channels():
    return [memoryview(bytes(2 * 7 * 7 * 5)).cast("B", (2, 7, 7, 5))]

def doubles():
    return [memoryview(bytes(2 * H * W * 3 * 8)).cast("d", (2, H, W, 3))]

def raises_at_once():
    raise ValueError("no such data set")

def raises_later():
    yield batch(0, 2)
    raise KeyError("sample 17")

def grows():
    yield batch(0, 2)
    yield memoryview(bytes(2 * 8 * 8 * 3)).cast("B", (2, 8, 8, 3)), array.array("i", [0, 1])

def dies():
    yield batch(0, 2)
    os.kill(os.getpid(), 9)

def leaves():
    yield batch(0, 2)
    os._exit(3)

def hangs():
    yield batch(0, 2)
    time.sleep(1000)

def prints():
    for i in range(3):
        print("batch", i)
        yield batch(2 * i, 2)

def writes_its_pid(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    return counting()

def forks(path):
    child = os.fork()
    if child == 0:
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(1)
    while True:
        yield batch(0, 2)
)";

class PythonLoader : public testing::Test {
 protected:
  PythonLoader() { write_text(folder_.path() / "loaders.py", kLoaders); }

  std::string text(const std::string& function, const std::string& more = "") const {
    return "python:loader='" + (folder_.path() / "loaders.py").string() + ":" + function + "'" +
           (more.empty() ? "" : "," + more);
  }
  Options options(const std::string& text) const {
    return Options("python", entry_.options, parse_component(text));
  }
  /// What the feeder says the loader yields, as options.
  FeederBatches describe(const std::string& text) const {
    return entry_.describe_batches(options(text), {}).value();
  }
  std::unique_ptr<Feeder> make(const std::string& text, Nanoseconds timeout = 30s) {
    const Options given = options(text);
    if (entry_.shape_batches != nullptr) entry_.shape_batches(given, spec_);
    return entry_.make(FeederContext{.spec = spec_,
                                     .device = device_,
                                     .clock = clock_,
                                     .options = given,
                                     .probe = probe_,
                                     .timeout = timeout,
                                     .slots = 2});
  }

  struct Seen {
    std::vector<std::byte> pixels;
    std::vector<std::int32_t> labels;
  };
  /// The first `count` batches. Rethrows what the feeder threw.
  std::vector<Seen> take(Feeder& feeder, std::size_t count, bool lends = true) {
    BatchRing ring(spec_, 2, device_, MemoryKind::host, readers_, Order::strict, clock_);
    if (lends) ring.accept_foreign();
    std::vector<Seen> seen;
    std::jthread thread([&](const std::stop_token& stop) { run_to_end(feeder, ring, stop); });
    while (seen.size() < count) {
      const ReadLease lease = ring.next(0, {});
      if (!lease) break;
      const Batch& batch = lease.batch();
      seen.push_back(
          {{batch.pixels.begin(), batch.pixels.end()}, {batch.labels.begin(), batch.labels.end()}});
    }
    thread.request_stop();
    thread.join();
    return seen;
  }
  std::vector<Seen> take(const std::string& text, std::size_t count, bool lends = true) {
    return take(*make(text), count, lends);
  }
  /// What the feeder tells a probe while it yields `count` batches.
  std::unique_ptr<Probe> probe_of(const std::string& text, std::size_t count) {
    auto probe = std::make_unique<Probe>();
    const Options given = options(text);
    const std::unique_ptr<Feeder> feeder = entry_.make(FeederContext{.spec = spec_,
                                                                     .device = device_,
                                                                     .clock = clock_,
                                                                     .options = given,
                                                                     .probe = *probe,
                                                                     .timeout = 30s,
                                                                     .slots = 2});
    EXPECT_EQ(take(*feeder, count).size(), count);
    return probe;
  }
  /// The first pixel of each image.
  static std::vector<int> firsts(const std::vector<Seen>& seen) {
    std::vector<int> result;
    for (const Seen& batch : seen) {
      for (std::size_t i = 0; i < batch.labels.size(); ++i) {
        result.push_back(
            std::to_integer<int>(batch.pixels[i * batch.pixels.size() / batch.labels.size()]));
      }
    }
    return result;
  }

  const FeederEntry& entry_ = find_entry(feeder_table(), "python");
  TempFolder folder_;
  BatchSpec spec_{.images = 2, .image = {4, 6, 3}, .classes = 1000};
  SteadyClock clock_;
  HostDevice device_{clock_};
  Probe probe_;
  std::array<Device*, 1> readers_{&device_};
};

TEST_F(PythonLoader, BatchesArriveInOrderAndUnchanged) {
  for (const bool lends : {true, false}) {
    const std::vector<Seen> seen = take(text("counting"), 6, lends);
    ASSERT_EQ(seen.size(), 6U);
    EXPECT_EQ(firsts(seen), (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(seen[2].labels, (std::vector<std::int32_t>{4, 5}));
    EXPECT_EQ(seen[2].pixels.back(), std::byte{5});
    EXPECT_GE(probe_.values().at(lends ? "bytes_lent" : "bytes_copied"), 6 * 144);
  }
}

/// The device reports completion only by events: a slot may be filled again as soon as its loan is
/// read, before the loader has heard of it. Each copy takes 14 ms.
TEST_F(PythonLoader, ASlowDeviceGetsEveryBatchAndTheLoaderEverySlot) {
  HostDevice slow(clock_, {.copy_bytes_per_s = 1e4});
  std::array<Device*, 1> readers{&slow};
  BatchRing ring(spec_, 2, slow, MemoryKind::host, readers, Order::strict, clock_);
  ring.accept_foreign();
  const std::unique_ptr<Feeder> feeder = make(text("counting", "args='batches=12'"));
  std::jthread thread([&](const std::stop_token& stop) { run_to_end(*feeder, ring, stop); });
  const std::unique_ptr<Stream> stream = slow.make_stream();
  std::vector<std::byte> copy(spec_.pixel_bytes());
  for (int batch = 0; batch < 24; ++batch) {
    ReadLease lease = ring.next(0, {});
    ASSERT_TRUE(lease);
    stream->copy(copy, lease.batch().pixels);
    EXPECT_EQ(std::to_integer<int>(copy.front()), 2 * batch % 24);
    EXPECT_EQ(std::to_integer<int>(copy.back()), 2 * batch % 24 + 1);
    std::move(lease).release(*stream);
  }
}

TEST_F(PythonLoader, EpochsFollowEachOther) {
  EXPECT_EQ(firsts(take(text("counting", "args='batches=2'"), 5)),
            (std::vector{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(firsts(take(text("generator"), 3)), (std::vector{0, 1, 2, 3, 0, 1}))
      << "a generator function is called again";
  EXPECT_GE(probe_.values().at("loader_epochs"), 4);
}

TEST_F(PythonLoader, APartialLastBatchIsLeftOutAndCounted) {
  EXPECT_EQ(firsts(take(text("partial"), 4)), (std::vector{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_GE(probe_.values().at("batches_partial"), 1);
  EXPECT_EQ(probe_.facts().at("images_left_out_per_epoch"), 1);
  EXPECT_TRUE(says(probe_.notes().back(), "of each epoch of the loader, 1 images"));
}

TEST_F(PythonLoader, BatchesMayBeDictionariesAndLabelsLists) {
  const std::vector<Seen> seen = take(text("named"), 3);
  EXPECT_EQ(firsts(seen), (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(seen[2].labels, (std::vector<std::int32_t>{4, 5}));
}

TEST_F(PythonLoader, MissingLabelsAreZeroAndNoted) {
  EXPECT_EQ(take(text("unlabelled"), 1).front().labels, (std::vector<std::int32_t>{0, 0}));
  EXPECT_TRUE(says(probe_.notes().back(), "no integer labels"));
}

TEST_F(PythonLoader, SettingsOfADataLoaderAreNoted) {
  const auto notes = [&](const std::string& workers) {
    const std::size_t before = probe_.notes().size();
    make(text("with_workers", "args='workers=" + workers + "'"));
    std::string all;
    const std::vector<std::string> said = probe_.notes();
    for (std::size_t i = before; i < said.size(); ++i) all += said[i] + "\n";
    return all;
  };
  EXPECT_TRUE(says(notes("0"), "do not overlap with training"));
  const std::string one = notes("1");
  EXPECT_TRUE(says(one, "num_workers=1, prefetch_factor=2, pin_memory=False"));
  EXPECT_FALSE(says(one, "usable cores"));
  EXPECT_TRUE(says(notes("4096"), "4096 workers share"));
}

/// Times are at least those that the loader sleeps. What `next` waits for its workers is a wait.
TEST_F(PythonLoader, TheWorkersOfADataLoaderAreStages) {
  constexpr std::int64_t kBatches = 40, kMs = 1'000'000;
  write_text(folder_.path() / "torch_like.py", kTorch);
  for (const char* function : {"make_loader", "generator"}) {
    for (const int workers : {0, 3}) {
      SCOPED_TRACE(std::string(function) + " with " + std::to_string(workers));
      const std::unique_ptr<Probe> told =
          probe_of("python:loader='" + (folder_.path() / "torch_like.py").string() + ":" +
                       function + "',args='num_workers=" + std::to_string(workers) + "'",
                   kBatches);
      Probe& probe = *told;
      const std::string_view runs_it = workers == 0 ? "loader" : "loader workers";
      const StageCounters &load = probe.stage({"load", runs_it, 0}),
                          &collate = probe.stage({"collate", runs_it, 0}),
                          &next = probe.stage({"get next", "loader", 0});
      // A generator does not say how many workers it has; more than one may have begun.
      EXPECT_GE(load.stage.threads, function[0] == 'm' ? std::max(workers, 1) : 1);
      EXPECT_LE(load.stage.threads, std::max(workers, 1));
      EXPECT_GE(load.images.value(), 2 * kBatches);
      const std::int64_t timed = function[0] == 'm' || workers == 0 ? kBatches - 1 : kBatches / 4;
      EXPECT_GE(load.wall_ns.value(), timed * 4 * kMs);
      EXPECT_GE(collate.wall_ns.value(), timed * kMs);
      EXPECT_LT(collate.wall_ns.value(), load.wall_ns.value());
      EXPECT_LT(next.wall_ns.value(), kBatches * 4 * kMs) << "of it, samples and waits are apart";
    }
  }
}

TEST_F(PythonLoader, TheWayFromWorkersAndPinningAreTimed) {
  constexpr std::int64_t kBatches = 20, kMs = 1'000'000;
  write_text(folder_.path() / "torch_like.py", kTorch);
  const auto told = [&](const std::string& function, const std::string& arguments) {
    return probe_of("python:loader='" + (folder_.path() / "torch_like.py").string() + ":" +
                        function + "',args='" + arguments + "'",
                    kBatches);
  };
  const auto has = [](const Probe& probe, std::string_view name) {
    return std::ranges::any_of(probe.stages(),
                               [&](const StageCounters& each) { return each.stage.name == name; });
  };
  const std::unique_ptr<Probe> pinned = told("make_loader", "num_workers=2,pin_memory=True");
  const StageCounters &queue = pinned->stage({"queue", kOutside, 0}),
                      &pin = pinned->stage({"pin", "pin thread", 0});
  EXPECT_GE(queue.items.value(), kBatches);
  EXPECT_GE(queue.wall_ns.value(), queue.items.value() * 3 * kMs);
  EXPECT_GE(pin.wall_ns.value(), pin.items.value() * kMs);
  EXPECT_EQ(pin.stage.threads, 1);
  const std::unique_ptr<Probe> not_pinned = told("nested", "num_workers=2");
  EXPECT_TRUE(has(*not_pinned, "queue"));
  EXPECT_FALSE(has(*not_pinned, "pin"));
  const std::unique_ptr<Probe> here = told("make_loader", "num_workers=0");
  EXPECT_FALSE(has(*here, "queue"));
}

TEST_F(PythonLoader, PartsOfALoaderRunAlone) {
  constexpr std::int64_t kBatches = 40, kMs = 1'000'000;
  write_text(folder_.path() / "torch_like.py", kTorch);
  const std::string loader = "python:loader='" + (folder_.path() / "torch_like.py").string() +
                             ":make_loader',args='num_workers=0',part=";
  const auto wall_ns = [&](const std::string& part, std::string_view stage) {
    return probe_of(loader + part, kBatches)->stage({stage, "loader", 0}).wall_ns.value();
  };
  EXPECT_GE(wall_ns("collate", "collate"), (kBatches - 1) * kMs);
  EXPECT_LT(wall_ns("collate", "load"), kBatches * 2 * kMs) << "samples are loaded once";
  EXPECT_GE(wall_ns("samples", "load"), (kBatches - 1) * 4 * kMs);
  EXPECT_LT(wall_ns("samples", "collate"), kBatches * kMs / 2);
  EXPECT_LT(wall_ns("handover", "get next"), kBatches * kMs) << "the loader does not run";
  EXPECT_EQ(firsts(take(text("counting", "part=handover"), 3)), (std::vector{0, 1, 0, 1, 0, 1}));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(text("counting", "part=collate")); }),
                   "is no DataLoader of PyTorch"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(text("counting", "part=half")); }),
                   "expected all, handover, collate or samples"));
}

TEST_F(PythonLoader, WithoutALoaderTheFeedersYieldTheSameRandomBatchAgainAndAgain) {
  for (const char* const name : {"python", "python-queue", "python-dataset"}) {
    SCOPED_TRACE(name);
    const FeederEntry& entry = find_entry(feeder_table(), name);
    const Options given(name, entry.options, parse_component(name));
    const std::unique_ptr<Feeder> feeder = entry.make(FeederContext{.spec = spec_,
                                                                    .device = device_,
                                                                    .clock = clock_,
                                                                    .options = given,
                                                                    .probe = probe_,
                                                                    .timeout = 30s,
                                                                    .slots = 2});
    const std::vector<Seen> seen = take(*feeder, 3);
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_EQ(seen[0].labels, (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(seen[0].pixels, seen[2].pixels);
    const std::set<std::byte> values(seen[0].pixels.begin(), seen[0].pixels.end());
    EXPECT_GT(values.size(), 32U) << "of 144 random bytes";
  }
}

TEST_F(PythonLoader, OutputOfTheLoaderDoesNoHarm) {
  EXPECT_EQ(firsts(take(text("prints"), 3)), (std::vector{0, 1, 2, 3, 4, 5}));
}

TEST_F(PythonLoader, ItsBatchesAreDescribed) {
  const FeederBatches batches = describe(text("counting", "args='images=3'"));
  EXPECT_EQ(batches.images, 3);
  EXPECT_EQ(batches.image, (ImageShape{4, 6, 3}));
  const std::vector<std::pair<std::string, std::string>> expected{
      {"batch", "3x4x6x3"}, {"pixels", "u8"}, {"planar", "false"}};
  EXPECT_EQ(batches.options, expected);
  EXPECT_FALSE(entry_.describe_batches(options(text("counting", "batch=2x4x6x3")), {}))
      << "stated batches are not asked for";
}

TEST_F(PythonLoader, ArraysOfNumPyKeepTheirTypeAndOrder) {
  if (!python_has("numpy")) GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  write_text(folder_.path() / "arrays.py", R"(
import numpy
def make(kind, planar):
    shape = (2, 3, 8, 6) if planar else (2, 8, 6, 3)
    values = numpy.arange(2 * 8 * 6 * 3).reshape(shape).astype(kind)
    return [(values, numpy.array([[7], [8]], dtype="uint16"))]
)");
  for (const auto& [kind, name] :
       {std::pair("float32", "f32"), {"float16", "f16"}, {"uint8", "u8"}}) {
    for (const char* const planar : {"True", "False"}) {
      SCOPED_TRACE(std::string(kind) + ", planar " + planar);
      const std::string loader = "python:loader='" + (folder_.path() / "arrays.py").string() +
                                 ":make',python=/usr/bin/python3,args=\"kind='" + kind +
                                 "',planar=" + planar + "\"";
      const FeederBatches found = describe(loader);
      EXPECT_EQ(found.options[1].second, name);
      EXPECT_EQ(found.options[2].second, *planar == 'T' ? "true" : "false");
      EXPECT_EQ(found.image, (ImageShape{8, 6, 3}));
      std::string stated = loader;
      for (const auto& [key, value] : found.options) stated += "," + key + "=" + value;
      const std::vector<Seen> seen = take(stated, 1);
      ASSERT_EQ(seen.size(), 1U);
      EXPECT_EQ(seen[0].labels, (std::vector<std::int32_t>{7, 8}));
      for (const std::size_t i : {0, 1, 100, 287}) {
        const std::byte* const at = seen[0].pixels.data() + i * size_of(spec_.pixel);
        float value = 0;
        if (spec_.pixel == DType::f32) std::memcpy(&value, at, sizeof value);
        if (spec_.pixel == DType::u8) value = static_cast<float>(std::to_integer<int>(*at));
        if (spec_.pixel == DType::f16) {
          values::Fp16 half{};
          std::memcpy(&half, at, sizeof half);
          value = values::load(half);
        }
        EXPECT_EQ(value, static_cast<float>(spec_.pixel == DType::u8 ? i % 256 : i));
      }
    }
  }
}

/// A loader, and words of the report.
struct Fault {
  const char* function;
  const char* words;
};

TEST_F(PythonLoader, FaultsBeforeTheFirstBatchAreNamed) {
  for (const Fault& fault : {Fault{"missing", "has no 'missing'"},
                             {"empty", "yielded no batch"},
                             {"number", "is of type int"},
                             {"text", "expected an array of images"},
                             {"three_dimensions", "uint8[2, 3, 4]"},
                             {"five_channels", "expected [N,H,W,C]"},
                             {"doubles", "pixels are d"},
                             {"raises_at_once", "ValueError: no such data set"}}) {
    const std::string said = thrown_by<Error>([&] { describe(text(fault.function)); });
    EXPECT_TRUE(says(said, fault.words)) << fault.function << ": " << said;
  }
  const auto fails = [&](const std::string& loader) {
    return thrown_by<Error>([&] { describe(loader); });
  };
  EXPECT_TRUE(says(fails("python:loader=nowhere.py:f"), "no file 'nowhere.py'"));
  EXPECT_TRUE(says(fails("python:loader=f"), "expected FILE.py:FUNCTION"));
  EXPECT_TRUE(says(fails(text("counting", "args='2'")), "NAME=VALUE"));
  EXPECT_TRUE(says(fails(text("counting", "args='image=2'")), "unexpected keyword"));
  EXPECT_TRUE(says(fails(text("counting", "python=/no/python")), "expected a Python interpreter"));
}

TEST_F(PythonLoader, FaultsDuringARunComeAfterTheBatchesBeforeThem) {
  for (const Fault& fault : {Fault{"raises_later", "KeyError: 'sample 17'"},
                             {"grows", "batch 1 of the loader has uint8[2, 8, 8, 3]"},
                             {"dies", "was ended by signal 9"},
                             {"leaves", "ended with status 3"},
                             {"wrong_label", "a label of the loader is 1000"}}) {
    const std::unique_ptr<Feeder> feeder = make(text(fault.function));
    const std::string said = thrown_by<Error>([&] { take(*feeder, 9); });
    EXPECT_TRUE(says(said, fault.words)) << fault.function << ": " << said;
  }
}

TEST_F(PythonLoader, OneThatHangsEndsTheRunWithinItsTimeout) {
  const std::unique_ptr<Feeder> feeder = make(text("hangs"), 300ms);
  const std::string said = thrown_by<TimeoutError>([&] { take(*feeder, 9); });
  EXPECT_TRUE(says(said, "yielded no batch"));
}

TEST_F(PythonLoader, BatchesOfAnotherShapeAreRefused) {
  const std::string said =
      thrown_by<ConfigError>([&] { make(text("counting", "args='images=3'")); });
  EXPECT_TRUE(says(said, "the loader yields 3x4x6x3 u8"));
  EXPECT_TRUE(says(said, "expects 2x4x6x3 u8"));
  EXPECT_THROW(make(text("counting", "batch=2x4x6")), ConfigError);
  EXPECT_THROW(make(text("counting", "batch=2x4x6x3,pixels=f64")), ConfigError);
}

TEST_F(PythonLoader, NothingOfItOutlivesTheFeeder) {
  for (const std::string function : {"writes_its_pid", "forks"}) {
    const std::string path = (folder_.path() / function).string();
    std::unique_ptr<Feeder> feeder = make(text(function, "args='path=\"" + path + "\"'"));
    take(*feeder, 2);
    ASSERT_TRUE(await([&] { return !read_text(path).empty(); }));
    const int pid = std::stoi(read_text(path));
    EXPECT_EQ(kill(pid, 0), 0);
    feeder.reset();
    EXPECT_TRUE(await([&] { return kill(pid, 0) != 0; })) << function;
  }
}

}  // namespace
}  // namespace penstock

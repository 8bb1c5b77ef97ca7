// SPDX-License-Identifier: Apache-2.0
// The times inside a DataLoader of PyTorch, with a stand-in for it: workers, the way from them, and
// parts of the loader alone.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "tests/feeders/python/python_loader_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

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

def spawned_loop(number, init, fetcher, out):
    global worker
    worker = types.SimpleNamespace(id=number)
    init(number)
    _worker_loop(fetcher, out)

class _MultiProcessingDataLoaderIter:
    def __init__(self, loader):
        global worker
        self.loader, self.pipes, self.turn = loader, [], 0
        self._rcvd_idx, self._task_info = 0, {}
        for number in range(loader.num_workers):
            mine, childs = multiprocessing.Pipe(duplex=False)
            if loader.multiprocessing_context:
                loader.multiprocessing_context.Process(target=spawned_loop, daemon=True, args=(
                    number, loader.worker_init_fn, loader.fetcher(), childs)).start()
            elif os.fork() == 0:
                worker = types.SimpleNamespace(id=number)
                working._worker_loop(loader.fetcher(), childs)
            self.pipes.append(mine)

    def __iter__(self):
        return self

    def _get_data(self):
        index = self.turn ^ self.loader.swaps
        self.turn += 1
        return index, self.pipes[index % len(self.pipes)].recv()

    def _next_data(self):
        while self._rcvd_idx not in self._task_info:
            index, batch = self._get_data()
            self._task_info[index] = (0, batch)
            time.sleep(0.002)
        batch = self._task_info.pop(self._rcvd_idx)[1]
        self._rcvd_idx += 1
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
    """A data set that has a loader, which loads in the worker."""
    def __init__(self):
        self.inner = _MapDatasetFetcher(Samples(), lambda samples: samples)

    def __getitem__(self, index):
        return self.inner.fetch([index])[0]

def collate(samples):
    time.sleep(0.001)
    return samples

class DataLoader:
    prefetch_factor = 2
    multiprocessing_context = None
    worker_init_fn = None
    swaps = 0  # 1: each second batch comes before the one that it follows

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

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, item):
        for transform in self.transforms:
            item = transform(item)
        return item

class Blur:
    def __call__(self, item):
        time.sleep(0.003)
        return item

class Transformed:
    """Reads a sample for 2 ms, transforms it for 3 ms, and crops it for 1 ms."""
    def __init__(self):
        self.transform = Compose([Blur(), crop])

    def __getitem__(self, index):
        time.sleep(0.002)  # reads
        return self.transform(index)

def crop(item):
    time.sleep(0.001)
    return item

data.DataLoader = DataLoader

def make_loader(num_workers, pin_memory=False, data="Samples"):
    return DataLoader(num_workers, pin_memory, globals()[data]())

class Uneven:
    def __getitem__(self, index):
        time.sleep(0.02 if index == 1 else 0.001)
        return index

class Augment:
    def __call__(self, item):
        time.sleep(0.001)
        return item

STEPS = Compose([Blur(), crop])

class Formatted:
    """As a data set of Hugging Face: it holds its functions in a dictionary, and one of them uses a global Compose."""
    def __init__(self):
        self.format = {"function": lambda items: [STEPS(item) for item in items], "transform": Augment()}

    def __getitem__(self, index):
        time.sleep(0.002)  # reads
        return self.format["transform"](self.format["function"]([index])[0])

class Sorted:
    """Sorts numbers for some 50 ms, in which no other thread of Python runs, and then lets others run twice. It waits for nothing:
    a profile that reads the thread's state a little late would see the wait."""
    def __init__(self):
        self.numbers = [i * 7919 % 200003 for i in range(200000)]

    def __getitem__(self, index):
        sorted(self.numbers)  # holds the lock
        os.stat("/")  # lets go of it
        os.stat("/")
        return index

def fixed():
    return DataLoader(0, False, Samples())

def note_worker(number):
    print("worker", number, "begins", file=sys.stderr, flush=True)

def spawned(num_workers):
    loader = make_loader(num_workers)
    loader.multiprocessing_context = multiprocessing.get_context("spawn")
    loader.worker_init_fn = note_worker
    return loader

def swapped(num_workers):
    loader = make_loader(num_workers)
    loader.swaps = 1
    return loader

def generator(num_workers):
    yield from make_loader(num_workers)
)";

class DataLoader : public PythonLoader {
 protected:
  DataLoader() { write_text(folder_ / "torch_like.py", kTorch); }
  /// The text of a feeder with a function of that file, such as "make_loader".
  std::string torch(const std::string& function, const std::string& arguments,
                    const std::string& more = "") const {
    return text(function, "args='" + arguments + "'" + more, "torch_like.py");
  }
  static std::string workers(int count) { return "num_workers=" + std::to_string(count); }
};

/// Times are at least those that the loader sleeps. What `next` waits for its workers is a wait.
TEST_F(DataLoader, TheWorkersOfADataLoaderAreStages) {
  constexpr std::int64_t kBatches = 40, kMs = 1'000'000;
  for (const char* function : {"make_loader", "generator", "spawned"}) {
    for (const int count : {0, 3}) {
      SCOPED_TRACE(std::string(function) + " with " + std::to_string(count));
      const std::unique_ptr<Probe> told = probe_of(torch(function, workers(count)), kBatches);
      Probe& probe = *told;
      const std::string_view runs_it = count == 0 ? "loader" : "loader workers";
      const StageCounters &load = probe.stage({"load", runs_it, 0}),
                          &collate = probe.stage({"collate", runs_it, 0}),
                          &next = probe.stage({"next(loader)", "loader", 0});
      // A generator does not say how many workers it has; more than one may have begun.
      EXPECT_GE(load.stage.threads, function[0] == 'm' ? std::max(count, 1) : 1);
      EXPECT_LE(load.stage.threads, std::max(count, 1));
      EXPECT_GE(load.images.value(), 2 * kBatches);
      const std::int64_t timed = function[0] == 'm' || count == 0 ? kBatches - 1 : kBatches / 4;
      EXPECT_GE(load.wall_ns.value(), timed * 4 * kMs);
      EXPECT_GE(collate.wall_ns.value(), timed * kMs);
      EXPECT_LT(collate.wall_ns.value(), load.wall_ns.value());
      // Sleeping takes longer on a busy machine, but asking takes no time that is not counted
      // there.
      EXPECT_LT(next.wall_ns.value(), kBatches * kMs) << "samples, collate and waits are separate";
    }
  }
}

TEST_F(DataLoader, TheWayFromWorkersAndPinningAreTimed) {
  constexpr std::int64_t kBatches = 20, kMs = 1'000'000;
  const auto told = [&](const std::string& function, const std::string& arguments) {
    return probe_of(torch(function, arguments), kBatches);
  };
  const auto has = [](const Probe& probe, std::string_view name) {
    return std::ranges::any_of(probe.stages(),
                               [&](const StageCounters& each) { return each.stage.name == name; });
  };
  const std::unique_ptr<Probe> pinned = told("make_loader", "num_workers=2,pin_memory=True");
  const StageCounters &queue = pinned->stage({"queue", "worker queue", 0}),
                      &pin = pinned->stage({"pin", "pin thread", 0});
  EXPECT_GE(queue.items.value(), kBatches);
  EXPECT_GE(queue.wall_ns.value(), queue.items.value() * 3 * kMs);
  EXPECT_GE(pin.wall_ns.value(), pin.items.value() * kMs);
  EXPECT_EQ(pin.stage.threads, 1);
  const std::unique_ptr<Probe> not_pinned = told("make_loader", "num_workers=2,data=Nested");
  EXPECT_TRUE(has(*not_pinned, "queue"));
  EXPECT_FALSE(has(*not_pinned, "pin"));
  const std::unique_ptr<Probe> here = told("make_loader", "num_workers=0");
  EXPECT_FALSE(has(*here, "queue"));
}

/// Transforms of a list are timed; the line that reads is sampled.
TEST_F(DataLoader, AProfileHasTheTimeOfTransformsAndOfLinesOfCode) {
  constexpr std::int64_t kBatches = 200, kMs = 1'000'000;
  for (const auto& [data, count] :
       {std::pair("Transformed", 0), {"Transformed", 2}, {"Formatted", 2}}) {
    SCOPED_TRACE(std::string(data) + " with " + std::to_string(count));
    const std::unique_ptr<Probe> told =
        probe_of(torch("make_loader", workers(count) + ",data=" + data, ",profile=true"), kBatches);
    std::map<std::string, std::int64_t> times;
    for (const auto& [name, ns] : told->values()) {
      if (name.starts_with("load_ns: ")) times[name.substr(9)] = ns;
    }
    const std::int64_t blur = times["Blur"], crop = times["crop"];
    std::int64_t reading = 0;
    for (const auto& [name, ns] : times) {
      if (name.ends_with("time.sleep(0.002)  # reads")) reading += ns;
    }
    // Half of the batches at least are in the last profile.
    EXPECT_GE(blur, kBatches * 3 * kMs);
    EXPECT_GE(crop, kBatches * 1 * kMs);
    EXPECT_EQ(times.contains("Augment"), data[0] == 'F');
    EXPECT_LT(crop, blur);
    EXPECT_GE(reading, crop);
    EXPECT_LT(reading, blur);
    EXPECT_TRUE(std::ranges::any_of(told->notes(), [](const std::string& note) {
      return says(note, "the time for samples is spent in: ") && says(note, " % Blur, ");
    }));
  }
  const std::unique_ptr<Probe> other = probe_of(text("counting", "profile=true"), 3);
  EXPECT_TRUE(mentions(other->notes(), "which code loads samples is not known"));
}

/// Python's global lock keeps the profile's thread from running during a call, but the call's line
/// is named, with the time that it held the lock.
TEST_F(DataLoader, AProfileNamesTheLineThatHoldsPythonsLock) {
  for (const int count : {0, 2}) {
    SCOPED_TRACE(count);
    // A profile comes each half second.
    const std::unique_ptr<Probe> told =
        probe_of(torch("make_loader", workers(count) + ",data=Sorted", ",profile=true"), 60);
    std::int64_t sorts = 0, all = 0, computes = 0;
    for (const auto& [name, ns] : told->values()) {
      if (name.starts_with(kLoadTime)) all += ns;
      if (name.ends_with("# holds the lock")) sorts += ns;
      if (name == std::string(kLoadState) + "computing") computes += ns;
    }
    EXPECT_GT(10 * sorts, 7 * all) << sorts << " of " << all << " ns";
    EXPECT_TRUE(computes == 0 || 10 * computes > 7 * all)
        << computes << " of " << all << " ns; 0: this kernel does not say";
  }
}

TEST_F(DataLoader, ALateBatchThatHoldsLaterOnesBackIsAFact) {
  const auto held = [&](const std::string& function) {
    return probe_of(torch(function, workers(2)), 150)->facts().at("loader_held_back_percent");
  };
  EXPECT_EQ(held("make_loader"), 0);
  EXPECT_GT(held("swapped"), 5);
  EXPECT_LT(held("swapped"), 99);
}

TEST_F(DataLoader, WhatIsPickledForAWorkerIsAFact) {
  const auto facts = [&](const std::string& function) {
    return probe_of(torch(function, workers(2)), 20)->facts();
  };
  EXPECT_EQ(facts("make_loader").count("loader_pickled_bytes_per_worker"), 0U);
  const std::map<std::string, double> spawned = facts("spawned");
  EXPECT_GT(spawned.at("loader_pickled_bytes_per_worker"), 10'000)
      << "this program's text is in it";
  EXPECT_LT(spawned.at("loader_pickled_bytes_per_worker"), 1e6);
  EXPECT_GT(spawned.at("loader_pickling_ms_per_worker"), 0);
}

/// Samples sleep: no processor is used, and the profile names the sleep.
TEST_F(DataLoader, SettingsAndWhatSamplesWaitForAreFacts) {
  const std::unique_ptr<Probe> told =
      probe_of(torch("make_loader", workers(2), ",profile=true"), 150);
  const std::map<std::string, double> facts = told->facts();
  EXPECT_EQ(facts.at("loader_num_workers"), 2);
  EXPECT_EQ(facts.at("loader_prefetch_factor"), 2);
  EXPECT_LT(facts.at("samples_processors"), 0.5);
  EXPECT_GE(facts.at("samples_core_wait_percent"), 0);
  std::int64_t sleeping = 0, all = 0;
  for (const auto& [name, ns] : told->values()) {
    if (name.starts_with(kLoadState)) all += ns;
    if (name == std::string(kLoadState) + "sleeping") sleeping = ns;
  }
  if (all == 0) GTEST_SKIP() << "this kernel does not show in which system call a thread is";
  EXPECT_GT(2 * sleeping, all);
}

TEST_F(DataLoader, AProfileNamesTheSlowestSamples) {
  for (const int count : {0, 2}) {
    SCOPED_TRACE(count);
    const std::map<std::string, double> facts =
        probe_of(torch("make_loader", workers(count) + ",data=Uneven", ",profile=true"), 100)
            ->facts();
    EXPECT_GE(facts.at("slow_sample_ms: 1"), 20);
    EXPECT_GT(facts.at("median_sample_ms"), 0);
    EXPECT_LE(facts.at("median_sample_ms"), facts.at("slow_sample_ms: 1"));
  }
}

TEST_F(DataLoader, SettingsThatTheFunctionDoesNotTakeReplaceItsOwn) {
  const std::unique_ptr<Probe> told = probe_of(torch("fixed", workers(2)), 3);
  EXPECT_EQ(told->facts().at("loader_num_workers"), 2);
  EXPECT_TRUE(mentions(told->notes(), "num_workers=2 replaces what the function states"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(torch("fixed", "in_order=False")); }),
                   "the DataLoader of this PyTorch has no 'in_order'"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(text("counting", "args='num_workers=2'")); }),
                   "takes no argument 'num_workers', and makes no DataLoader"));
}

TEST_F(DataLoader, PartsOfALoaderRunAlone) {
  constexpr std::int64_t kBatches = 40, kMs = 1'000'000;
  const auto wall_ns = [&](const std::string& part, std::string_view stage) {
    return probe_of(torch("make_loader", workers(0), ",part=" + part), kBatches)
        ->stage({stage, "loader", 0})
        .wall_ns.value();
  };
  EXPECT_GE(wall_ns("collate", "collate"), (kBatches - 1) * kMs);
  EXPECT_LT(wall_ns("collate", "load"), kBatches * 2 * kMs) << "samples are loaded once";
  EXPECT_GE(wall_ns("samples", "load"), (kBatches - 1) * 4 * kMs);
  EXPECT_LT(wall_ns("samples", "collate"), kBatches * kMs / 2);
  EXPECT_LT(wall_ns("handover", "next(loader)"), kBatches * kMs) << "the loader does not run";
  EXPECT_EQ(firsts(take(text("counting", "part=handover"), 3)), (std::vector{0, 1, 0, 1, 0, 1}));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(text("counting", "part=collate")); }),
                   "is no DataLoader of PyTorch"));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { make(text("counting", "part=half")); }),
                   "expected all, handover, collate or samples"));
}

}  // namespace
}  // namespace penstock

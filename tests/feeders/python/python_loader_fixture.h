// SPDX-License-Identifier: Apache-2.0
// Python loaders in child processes: a script of loaders, and what arrives from them in a ring.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/host_device.h"
#include "feeders/feeder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"

namespace penstock {

using namespace std::chrono_literals;

/// Loaders that need no package. Image i of the data has bytes i and label i.
inline constexpr const char* kLoaders = R"(
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

class Observed:
    """Notes what a training loop does with it."""
    def __init__(self, path):
        self.path, self.sampler = path, self

    def write(self, text):
        with open(self.path, "a") as file:
            file.write(text + "\n")

    def set_epoch(self, epoch):
        self.write(f"epoch {epoch}")

    def __iter__(self):
        self.write("iter")
        return iter([batch(0, 2), batch(2, 2)])

class Resettable:
    """As DALI's iterator: it ends until it is reset. Its epochs are its resets."""
    made = 0

    def __init__(self):
        Resettable.made += 1
        assert Resettable.made == 1
        self.taken = self.resets = 0
        self.sampler = self

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return self

    def __next__(self):
        if self.taken == 2:
            raise StopIteration
        assert self.epoch == self.resets
        self.taken += 1
        return batch(2 * self.taken - 2, 2)

    def reset(self):
        self.taken = 0
        self.resets += 1

class ResetsItself(Resettable):
    def __next__(self):
        try:
            return super().__next__()
        except StopIteration:
            super().reset()
            raise

    def reset(self):
        raise RuntimeError("reset twice")

def exits():
    raise SystemExit("set DATA_ROOT")

def several():
    return {"train": DataLoader(0), "val": DataLoader(0)}

def odd_name():
    raise OSError("cannot open " + b"a\xff".decode("utf-8", "surrogateescape"))

def needs_a_package():
    import no_such_package

def separate_images():
    return [[memoryview(bytes(36)).cast("B", (3, 4, 3)) for _ in range(9)]]

def index_first():
    return [{"index": [7, 8], "image": batch(0, 2)[0], "label": [1, 2], "mask": batch(4, 2)[0]}]

def unlabelled():
    return [batch(0, 2)[0]]

def wrong_label():
    pixels, labels = batch(0, 2)
    return [(pixels, array.array("i", [1, 1000]))]

def empty():
    return []

def number():
    return 5

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

  std::string text(const std::string& function, const std::string& more = "",
                   const char* file = "loaders.py") const {
    return "python:loader='" + (folder_.path() / file).string() + ":" + function + "'" +
           (more.empty() ? "" : "," + more);
  }
  Options options(const std::string& text) const {
    return Options("python", entry_.options, parse_component(text));
  }
  FeederContext context(const Options& given, Probe& probe, Nanoseconds timeout = 30s) {
    return {.spec = spec_,
            .device = device_,
            .clock = clock_,
            .options = given,
            .probe = probe,
            .timeout = timeout,
            .slots = 2};
  }
  /// What the feeder says the loader yields, as options.
  FeederBatches describe(const std::string& text) const {
    return entry_.describe_batches(options(text), {}, 0).value();
  }
  /// The text, and options that state these batches.
  std::string stated(const std::string& text) const {
    std::string stated = text;
    for (const auto& [key, value] : describe(text).options) stated += "," + key + "=" + value;
    return stated;
  }
  std::unique_ptr<Feeder> make(const std::string& text, Nanoseconds timeout = 30s) {
    const Options given = options(text);
    entry_.shape_batches(given, spec_);
    return entry_.make(context(given, probe_, timeout));
  }

  struct Seen {
    std::vector<std::byte> pixels;
    std::vector<std::int32_t> labels;
    std::int32_t images = 0;
    bool begins_epoch = false;
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
      const std::span<const std::byte> pixels = batch.pixels.first(batch.bytes);
      seen.push_back({{pixels.begin(), pixels.end()},
                      {batch.labels.begin(), batch.labels.end()},
                      batch.valid,
                      batch.begins_epoch});
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
    entry_.shape_batches(given, spec_);
    EXPECT_EQ(take(*entry_.make(context(given, *probe)), count).size(), count);
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

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
// As far as a loader can tell, a run is a training loop: both write what happens to a log, and the
// logs are equal. The device ends a step only when the loop waits for it, as late as possible.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/host_device.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/stager.h"
#include "tests/feeders/python/python_loader_fixture.h"
#include "tests/support/patience.h"
#include "trainer/replica.h"

namespace penstock {
namespace {

/// A loader with a sampler and one worker process, four batches an epoch; and a training loop.
constexpr const char* kLoop = R"(
import collections, itertools, os

def log(path, text):
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, (text + "\n").encode())
    os.close(file)

class Sampler:
    def __init__(self, path):
        self.path = path

    def set_epoch(self, epoch):
        log(self.path, f"set_epoch {epoch}")

class Iterator:
    def __init__(self, loader):
        log(loader.path, "iter")
        self.loader, self.taken = loader, 0
        (asks, self.asking), (self.getting, gives) = os.pipe(), os.pipe()
        self.worker = os.fork()
        if self.worker == 0:
            os.close(self.asking)
            log(loader.path, "worker started")
            os.write(gives, b"s")
            while os.read(asks, 1):
                os.write(gives, b"x")
            os._exit(0)
        os.close(asks)
        os.read(self.getting, 1)

    def __iter__(self):
        return self

    def __next__(self):
        log(self.loader.path, f"asked {self.loader.total}")
        if self.taken == 4:
            raise StopIteration
        os.write(self.asking, b"?")
        os.read(self.getting, 1)
        log(self.loader.path, f"got {self.loader.total}")
        self.taken += 1
        self.loader.total += 1
        return memoryview(bytes(2 * 4 * 6 * 3)).cast("B", (2, 4, 6, 3)), [0, 1]

    def __del__(self):
        os.close(self.asking)
        os.waitpid(self.worker, 0)
        log(self.loader.path, "worker ended")

class Loader:
    def __init__(self, path):
        self.path, self.sampler, self.total = path, Sampler(path), 0

    def __iter__(self):
        return Iterator(self)

def train(path, ahead, steps):
    loader, unfinished = Loader(path), collections.deque()
    def end():
        log(path, f"ended {unfinished.popleft()}")
    number = itertools.count()
    for epoch in itertools.count():
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            while len(unfinished) > max(ahead - 1, 0):  # the copy waits for memory of the device
                end()
            unfinished.append(next(number))
            log(path, f"launched {unfinished[-1]}")
            if unfinished[-1] == steps - 1:
                return
            while len(unfinished) > ahead:
                end()
)";

/// How many steps may end.
class Gate {
 public:
  void open(std::size_t steps) {
    const std::lock_guard lock(mutex_);
    open_ = std::max(open_, steps);
    changed_.notify_all();
  }
  void wait(std::size_t steps) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ >= steps; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::size_t open_ = 0;
};

/// Reached when that many steps have ended.
class GatedEvent final : public Event {
 public:
  explicit GatedEvent(const Gate& gate) : gate_(gate) {}
  bool wait_until(Time) const override {
    gate_.wait(steps);
    return true;
  }
  Nanoseconds since(const Event&) const override { return {}; }

  std::atomic<std::size_t> steps = 0;

 private:
  const Gate& gate_;
};

class GatedStream final : public Stream {
 public:
  explicit GatedStream(const Gate& gate) : gate_(gate) {}
  void record(Event& event) override { static_cast<GatedEvent&>(event).steps = steps; }
  void wait_for(const Event& event) override {
    steps = std::max(steps, static_cast<const GatedEvent&>(event).steps.load());
  }
  void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
    gate_.wait(steps);
    std::ranges::copy(from, to.begin());
  }
  std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override {
    return std::make_unique<Closure>(enqueue);
  }
  void* native() noexcept override { return this; }

  std::size_t steps = 0;  // that have ended when all work so far has

 private:
  const Gate& gate_;
};

/// A device whose steps end when the gate opens.
class GatedDevice final : public HostDevice {
 public:
  GatedDevice(Clock& clock, const Gate& gate) : HostDevice(clock), gate_(gate) {}
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<GatedStream>(gate_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<GatedEvent>(gate_); }

 private:
  const Gate& gate_;
};

class Log {
 public:
  explicit Log(std::string path) : path_(std::move(path)) {}
  void add(const std::string& line) const {
    const FileDescriptor file(open(path_.c_str(), O_APPEND | O_CREAT | O_WRONLY, 0600));
    const std::string text = line + "\n";
    EXPECT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// The lines that do not begin with `without`, up to `last`.
  std::vector<std::string> lines(const std::string& last, const std::string& without) const {
    std::istringstream text(read_text(path_));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line) && line != last;) {
      if (without.empty() || !line.starts_with(without)) lines.push_back(line);
    }
    return lines;
  }
  bool has(const std::string& line) const {
    return ("\n" + read_text(path_)).find("\n" + line + "\n") != std::string::npos;
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

/// Trains nothing, and logs each step.
class LoggedSteps final : public Executable, public Optimizer, public UpdateStrategy {
 public:
  explicit LoggedSteps(const Log& log) : Optimizer(TensorRules{}), log_(log) {}
  const ParameterSet& parameters() const noexcept override { return none_; }
  void run(Phase, const Batch&, Stream& stream, const GradientReady&, StepResult&) override {
    log_.add("launched " + std::to_string(launched_++));
    static_cast<GatedStream&>(stream).steps = launched_;
  }
  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t) override {}
  void prepare(const ParameterSet&) override {}
  void set(const Hyper&, Stream&) override {}
  void apply(const ParameterSet&, float, Stream&, StepResult&) override {}
  void report_decay(const ParameterSet&, Stream&, StepResult&) override {}
  void average(const ParameterSet&, const Tensor&, float, float, Stream&) override {}
  OptimizerState state() override { return {}; }
  void start(Executable&, Stream&) override {}
  void finish_step(Executable&, Stream&, StepResult&) override {}

 private:
  const Log& log_;
  const ParameterSet none_;
  std::size_t launched_ = 0;
};

class TrainingLoop : public PythonLoader {
 protected:
  static constexpr std::size_t kSteps = 14;

  TrainingLoop() { write_text(script_, kLoop); }

  void train_plainly(std::size_t ahead, const Log& log) const {
    const std::string command =
        "cd '" + folder_.path().string() + "' && python3 -c \"import loop; " + "loop.train('" +
        log.path() + "', " + std::to_string(ahead) + ", " + std::to_string(kSteps) + ")\"";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }

  void train_in_the_harness(std::size_t ahead, const Log& log) {
    Gate gate;
    GatedDevice device(clock_, gate);
    const std::array<Device*, 1> readers{&device};
    const std::string text =
        "python:loader='" + script_.string() + ":Loader',args='path=\"" + log.path() + "\"'";
    const Options given = options(text);
    const FeederBatches found = entry_.describe_batches(given, DataPlan{}, 1).value();
    const std::unique_ptr<Feeder> feeder = entry_.make(FeederContext{.spec = spec_,
                                                                     .device = device,
                                                                     .clock = clock_,
                                                                     .options = given,
                                                                     .probe = probe_,
                                                                     .timeout = 30s,
                                                                     .slots = 1,
                                                                     .started = found.started});
    BatchRing host(spec_, 1, device, MemoryKind::pinned, readers, Order::relaxed, clock_);
    host.accept_foreign();
    BatchRing ring(spec_, std::max<std::size_t>(ahead, 1), device, MemoryKind::device, readers,
                   Order::relaxed, clock_);
    Stager stager(host, 0, ring, device, {}, ahead == 0 ? Holding::read : Holding::launched);
    LoggedSteps steps(log);
    Replica replica(ring, device, {steps, steps, steps, {}}, Phase::forward_only, clock_);
    std::jthread feeding([&](const std::stop_token& stop) { run_to_end(*feeder, host, stop); });
    std::jthread staging([&](const std::stop_token& stop) { stager.run(stop); });
    std::jthread training([&] {
      Leg leg;
      replica.run(kSteps, leg, {}, {});
      feeding.request_stop();
      staging.request_stop();
    });
    const auto seen = [&](const char* what, std::size_t number) {
      return await([&] { return log.has(what + (" " + std::to_string(number))); });
    };
    for (std::size_t step = 0; step + ahead < kSteps; ++step) {
      // The device must be this far before the loop waits for the step.
      const bool waits = ahead == 0
                             ? seen("launched", step)
                             : seen("launched", step + ahead - 1) && seen("got", step + ahead);
      EXPECT_TRUE(waits) << "before the end of step " << step;
      if (!waits) break;
      log.add("ended " + std::to_string(step));
      gate.open(step + 1);
    }
    gate.open(kSteps);
    training.join();
  }

  const std::filesystem::path script_ = folder_.path() / "loop.py";
};

TEST_F(TrainingLoop, TheLoaderSeesTheSameOrderOfEvents) {
  for (const std::size_t ahead : {0, 1, 4}) {
    SCOPED_TRACE(ahead);
    const Log loop((folder_.path() / ("loop" + std::to_string(ahead))).string());
    const Log harness((folder_.path() / ("harness" + std::to_string(ahead))).string());
    train_plainly(ahead, loop);
    train_in_the_harness(ahead, harness);
    // Several steps ahead, a thread of its own launches the step while the next batch is asked for.
    const std::string last = "got " + std::to_string(kSteps - 1);
    const std::string without = ahead > 1 ? "launched" : "";
    const std::vector<std::string> expected = loop.lines(last, without);
    EXPECT_GT(expected.size(), 3 * kSteps);
    EXPECT_EQ(harness.lines(last, without), expected);
  }
}

}  // namespace
}  // namespace penstock

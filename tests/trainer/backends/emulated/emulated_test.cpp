// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/backend.h"
#include "trainer/backends/emulated/presets.h"
#include "trainer/model.h"

namespace penstock {
namespace {

std::unique_ptr<Backend> make(const std::string& text, Clock& clock) {
  const ComponentText parts = parse_component(text);
  const BackendEntry& entry = find_entry(backend_table(), parts.name);
  const Options options(entry.name, entry.options, parts);
  return entry.make(options, clock);
}

TEST(Emulated, PresetsAreThePublishedBatchOverComputationTime) {
  VirtualClock clock;
  EXPECT_NEAR(make("emulated", clock)->facts().at("emulated_img_per_s"), 1785.7, 0.05);
  EXPECT_NEAR(make("emulated:preset=a100-mlperf-storage", clock)->facts().at("emulated_img_per_s"),
              919.5, 0.05);
  EXPECT_EQ(make("emulated:a100-mlperf-storage", clock)->facts(),
            make("emulated:preset=a100-mlperf-storage", clock)->facts());
}

TEST(Emulated, RefusesRatesAndWordsThatMeanNothing) {
  VirtualClock clock;
  for (const char* text : {"emulated:img_per_s=0",
                           "emulated:img_per_s=1e-9",
                           "emulated:img_per_s=1e300",
                           "emulated:copy_gb_per_s=1e-300",
                           "emulated:exchange=ms=1e300",
                           "emulated:img_per_s=-1",
                           "emulated:img_per_s=fast",
                           "emulated:img_per_s=nan",
                           "emulated:step_ms=0",
                           "emulated:step_ms=20,img_per_s=100",
                           "emulated:step_time=20ms,samples_per_s=100",
                           "emulated:sample_time=1ms,img_per_s=100",
                           "emulated:step_time=0ms",
                           "emulated:trace=/nowhere.json,step_ms=20",
                           "emulated:preset=b200",
                           "emulated:copy=maybe",
                           "emulated:exchange=ms=-1",
                           "emulated:exchange=often",
                           "emulated:copy_gb_per_s=0",
                           "emulated:pageable_gb_per_s=0",
                           "emulated:spin_us=-1",
                           "emulated:spin_us=10001",
                           "emulated:distribution=poisson",
                           "emulated:cv=0.1",
                           "emulated:distribution=normal,cv=0.31",
                           "emulated:distribution=uniform,cv=0.6",
                           "emulated:distribution=gamma,cv=0",
                           "emulated:distribution=exponential,cv=0.5",
                           "emulated:distribution=lognormal,cv=nan",
                           "emulated:row=2",
                           "emulated:exchange=real",
                           "emulated:trace=/nowhere.json",
                           "emulated:trace=/nowhere.json,img_per_s=100"}) {
    EXPECT_THROW(make(text, clock), ConfigError) << text;
  }
}

TEST(Emulated, CopiesAreRealUnlessSwitchedOff) {
  VirtualClock clock;
  for (const bool copies : {true, false}) {
    const auto backend = make(copies ? "emulated" : "emulated:copy=none", clock);
    const auto device = backend->open(0);
    const Buffer from = device->allocate(64, MemoryKind::pinned);
    const Buffer to = device->allocate(64, MemoryKind::device);
    std::memset(from.bytes().data(), 7, 64);
    device->make_stream()->copy(to.bytes(), from.bytes());
    EXPECT_EQ(to.bytes()[63], copies ? std::byte{7} : std::byte{0});
  }
}

TEST(Emulated, PresetsSayTheRateThatTheyAreAndWhoseItIs) {
  ASSERT_EQ(std::size(emulated::kPresets), emulated::kPresetValues.size());
  for (const emulated::Preset& preset : emulated::kPresets) {
    const std::string source(preset.source);
    EXPECT_NEAR(std::strtod(source.c_str(), nullptr), preset.img_per_s, 0.051) << preset.name;
    EXPECT_NE(source.find(" img/s: "), std::string::npos) << preset.name;
    EXPECT_NE(source.find('('), std::string::npos) << preset.name;
    VirtualClock clock;
    const auto facts = make("emulated:" + std::string(preset.name), clock)->facts();
    EXPECT_DOUBLE_EQ(facts.at("emulated_img_per_s"), preset.img_per_s) << preset.name;
  }
}

// ---- times of steps, on a simulated clock -----------------------------------

/// A backend with one device and a compiled model of one layer, or an empty one.
class EmulatedSteps {
 public:
  explicit EmulatedSteps(const std::string& text, std::int32_t batch = 64, std::uint64_t seed = 1,
                         std::int32_t rank = 0, const char* model = "resnet50")
      : backend(make(text, clock)), device(backend->open(rank)), stream(device->make_stream()) {
    const ModelEntry& entry = find_entry(model_table(), model);
    executable = backend->compile(
        build_graph(entry, entry.image, entry.classes),
        {.batch = {.images = batch}, .p100_img_per_s = entry.p100_img_per_s, .seed = seed},
        *device);
  }

  /// The time in milliseconds that the device is busy with a batch of that number of images.
  double step_ms(std::int32_t images) {
    auto* const timeline = static_cast<Timeline*>(stream->native());
    const Time before = timeline->free_at();
    batch_.valid = images;
    executable->run(Phase::train, batch_, *stream, {}, result_);
    EXPECT_EQ(result_.images, images);
    return std::chrono::duration<double, std::milli>(timeline->free_at() - before).count();
  }
  std::vector<double> steps(std::size_t count, std::int32_t images = 64) {
    std::vector<double> times(count);
    for (double& time : times) time = step_ms(images);
    return times;
  }

  VirtualClock clock;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Executable> executable;

 private:
  Batch batch_;
  StepResult result_;
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double cv_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1)) / mean;
}

TEST(EmulatedSteps, TakeTheTimeThatIsStatedForAWholeBatch) {
  EmulatedSteps steps("emulated:step_ms=20", 8);
  EXPECT_DOUBLE_EQ(steps.step_ms(8), 20);
  EXPECT_DOUBLE_EQ(steps.step_ms(4), 10);
  EmulatedSteps constant("emulated:step_time=20ms", 8);
  EXPECT_DOUBLE_EQ(constant.step_ms(8), 20);
  EXPECT_DOUBLE_EQ(constant.step_ms(4), 20) << "whatever its batch";
  EmulatedSteps affine("emulated:step_time=5ms,sample_time=500us", 8);
  EXPECT_DOUBLE_EQ(affine.step_ms(8), 9);
  EXPECT_DOUBLE_EQ(affine.step_ms(4), 7);
  EmulatedSteps rate("emulated:samples_per_s=400", 8);
  EXPECT_DOUBLE_EQ(rate.step_ms(8), 20);
  EXPECT_DOUBLE_EQ(steps.backend->facts().at("emulated_img_per_s"), 400);
  EXPECT_TRUE(steps.backend->notes().empty());
  EXPECT_EQ(thrown_by<ConfigError>([&] { make("emulated:ms=20", steps.clock); }).find("did you"),
            std::string::npos)
      << "two short words are not alike";
}

TEST(EmulatedSteps, TakeTheirImagesTimesTheTimeOfOne) {
  EmulatedSteps mlperf("emulated:a100-mlperf-storage", 400);
  EXPECT_DOUBLE_EQ(mlperf.step_ms(400), 435);
  EXPECT_DOUBLE_EQ(mlperf.step_ms(100), 108.75);
  EXPECT_DOUBLE_EQ(EmulatedSteps("emulated:img_per_s=1000,exchange=ms=3").step_ms(64), 67);
  EXPECT_EQ(EmulatedSteps("emulated", 64, 1, 0, "null").step_ms(64), 0);
}

TEST(EmulatedSteps, APresetIsARateOfResNet50AndScaledForOtherModels) {
  struct Case {
    const char* model;
    double times_as_long;
    const char* rule;
  };
  for (const auto& [model, times, rule] :
       {Case{"resnet50_v1.5", 1, ""},
        {"official_resnet50_v2", 1, ""},
        {"inception3", 219.0 / 142, "takes 1.54 times as long by TensorFlow's rates"},
        {"resnet152_v2", 219 / 91.8, "takes 2.39 times as long by TensorFlow's rates"},
        {"vgg16", 219.0 / 154, "takes 1.42 times as long by TensorFlow's rates"},
        {"vgg19", 219.0 / 154 * 19.6 / 15.5, "takes 1.8 times as long by TensorFlow's rates"},
        {"alexnet", 219.0 / 2987, "takes 0.0733 times as long by TensorFlow's rates"},
        {"resnet101", 7.57 / 3.86, "takes 1.96 times as long by its operations"},
        {"tiny_cnn", 1, "takes the same time since it has fewer than 1 GMAC"}}) {
    EmulatedSteps steps("emulated:preset=a100-mlperf-storage", 400, 1, 0, model);
    EXPECT_NEAR(steps.step_ms(400) / 435, times, 2e-3 * times) << model;
    EXPECT_NEAR(steps.backend->facts().at("emulated_step_ms") / 435, times, 2e-3 * times) << model;
    const std::string note = steps.backend->notes().at(0);
    EXPECT_NE(note.find(rule), std::string::npos) << note;
    EXPECT_EQ(note.find("ResNet-50, and") != std::string::npos, *rule != 0) << note;
    EXPECT_DOUBLE_EQ(EmulatedSteps("emulated:img_per_s=1000", 64, 1, 0, model).step_ms(64), 64);
  }
}

TEST(EmulatedSteps, ABatchThatWasNotPublishedIsNoted) {
  EXPECT_EQ(EmulatedSteps("emulated", 400).backend->notes(),
            std::vector<std::string>{"the emulated device is h100-mlperf-storage, 1785.7 img/s: "
                                     "batch 400 in 0.224 s (MLPerf Storage, resnet50_h100.yaml)"});
  const EmulatedSteps smaller("emulated", 100);
  const std::string note = smaller.backend->notes().at(0);
  EXPECT_NE(note.find("batches of 100 take the same time per image, 56.000 ms"), std::string::npos)
      << note;
  EXPECT_DOUBLE_EQ(smaller.backend->facts().at("emulated_step_ms"), 56);
  EXPECT_TRUE(EmulatedSteps("emulated:img_per_s=5").backend->notes().empty());
}

TEST(EmulatedSteps, EveryDistributionHasTheMeanAndTheDeviationThatItShould) {
  constexpr std::size_t kSteps = 40'000;
  for (const auto& [text, cv] : std::vector<std::pair<std::string, double>>{
           {"distribution=uniform,cv=0.3", 0.3},
           {"distribution=uniform,cv=0.577", 0.577},
           {"distribution=normal,cv=0.05", 0.05},
           {"distribution=normal,cv=0.3", 0.2985},  // cut at 0 and twice the mean
           {"distribution=lognormal", 0.05},
           {"distribution=lognormal,cv=1", 1},
           {"distribution=gamma,cv=0.2", 0.2},
           {"distribution=gamma,cv=1", 1},
           {"distribution=exponential", 1}}) {
    EmulatedSteps emulated("emulated:img_per_s=6400," + text);  // 10 ms
    const std::vector<double> times = emulated.steps(kSteps);
    // Five standard errors. Those of a standard deviation are larger for distributions with long
    // tails.
    EXPECT_NEAR(mean_of(times), 10, 10 * 5 * cv / std::sqrt(kSteps)) << text;
    EXPECT_NEAR(cv_of(times), cv, cv * (cv < 0.5 ? 0.02 : 0.06)) << text;
    for (const double time : times) ASSERT_GE(time, 0) << text;
  }
}

TEST(EmulatedSteps, AreAFunctionOfSeedRankAndStep) {
  const std::string text = "emulated:img_per_s=6400,distribution=gamma,cv=0.3";
  EmulatedSteps first(text), same(text), other_seed(text, 64, 2), other_rank(text, 64, 1, 1);
  const std::vector<double> times = first.steps(50);
  EXPECT_EQ(same.steps(50), times);
  const std::vector<double> of_seed = other_seed.steps(50), of_rank = other_rank.steps(50);
  for (std::size_t step = 0; step < 50; ++step) {
    EXPECT_NE(of_seed[step], times[step]) << step;
    EXPECT_NE(of_rank[step], times[step]) << step;
    EXPECT_NE(of_rank[step], of_seed[step]) << step;
  }
  first.executable->set_step(20);  // as a run resumed from a checkpoint does
  EXPECT_EQ(first.step_ms(64), times[20]);
}

TEST(EmulatedSteps, ScatterLeavesTheExchangeAndTheStatedMeanAlone) {
  EmulatedSteps emulated("emulated:img_per_s=6400,distribution=uniform,cv=0.5,exchange=ms=20");
  for (const double time : emulated.steps(1000)) {
    EXPECT_GE(time, 20 + 10 * (1 - 0.5 * std::sqrt(3)) - 1e-6);
    EXPECT_LE(time, 20 + 10 * (1 + 0.5 * std::sqrt(3)) + 1e-6);
  }
  EXPECT_DOUBLE_EQ(emulated.backend->facts().at("emulated_step_ms"), 30);
  EXPECT_DOUBLE_EQ(emulated.backend->facts().at("emulated_cv"), 0.5);
}

TEST(EmulatedSteps, ACopyEngineOfStatedBandwidthTakesItsTime) {
  EmulatedSteps emulated("emulated:copy_gb_per_s=0.001");
  const Buffer from = emulated.device->allocate(5000, MemoryKind::pinned);
  const Buffer to = emulated.device->allocate(5000, MemoryKind::device);
  const Time before = emulated.clock.now();
  emulated.stream->copy(to.bytes(), from.bytes());
  EXPECT_EQ(static_cast<Timeline*>(emulated.stream->native())->free_at() - before,
            std::chrono::milliseconds(5));
  EXPECT_DOUBLE_EQ(emulated.backend->facts().at("emulated_copy_gb_per_s"), 0.001);
}

TEST(EmulatedSteps, MemoryOfOtherCodeIsPageableUntilItIsPinned) {
  EmulatedSteps emulated("emulated:copy_gb_per_s=0.002,pageable_gb_per_s=0.001");
  const Buffer to = emulated.device->allocate(5000, MemoryKind::device);
  std::vector<std::byte> foreign(5000);
  const auto copy_ms = [&](std::span<const std::byte> from) {
    auto* const timeline = static_cast<Timeline*>(emulated.stream->native());
    const Time before = timeline->free_at();
    emulated.stream->copy(to.bytes(), from);
    return std::chrono::duration<double, std::milli>(timeline->free_at() - before).count();
  };
  EXPECT_FALSE(emulated.device->takes_any_memory());
  EXPECT_EQ(copy_ms(foreign), 5);
  {
    const auto pin = emulated.backend->open(1)->pin(foreign);
    EXPECT_EQ(copy_ms(foreign), 2.5) << "pinned for all devices";
  }
  EXPECT_EQ(copy_ms(foreign), 5);
  EXPECT_EQ(copy_ms(emulated.device->allocate(5000, MemoryKind::host).bytes()), 5);
  EXPECT_EQ(copy_ms(emulated.device->allocate(5000, MemoryKind::pinned).bytes()), 2.5);
}

}  // namespace
}  // namespace penstock

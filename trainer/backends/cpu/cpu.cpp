// SPDX-License-Identifier: Apache-2.0
// The cpu backend: trains on the machine's cores with oneDNN's operators and a static memory plan.
// Device memory is host memory; a step is done when enqueuing it returns.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/machine/memory_limit.h"
#include "trainer/backends/cpu/executable.h"
#include "trainer/backends/cpu/instruction_sets.h"
#include "trainer/backends/cpu/kernels.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

/// The rest stays free for rings, decoders and the page cache's working set.
constexpr double kShareOfMemory = 0.9;

constexpr OptionSpec kOptions[] = {
    {"winograd", "true",
     "use Winograd convolutions in fp32 if oneDNN finds them faster; about one digit less exact"},
    {"layout", "auto", "auto: oneDNN chooses; channels_last: N, H, W, C on every CPU"},
    {"isa", "all", "the highest of oneDNN's instruction sets to use, such as avx512_core_bf16"},
};

void check_precision(Precision precision) {
  if (precision == Precision::f32) return;
  if (precision != Precision::bf16) {
    throw Unavailable("the cpu device computes in fp32 and bf16, not in {}; use --precision fp32",
                      to_string(precision));
  }
  if (!__builtin_cpu_supports("avx512bf16")) {
    throw Unavailable("this CPU has no bf16 instructions (avx512_bf16); use --precision fp32");
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Options& options, Clock& clock)
      : clock_(clock),
        options_{.winograd = options.flag("winograd"),
                 .channels_last = options.choice("layout", {{"auto"}, {"channels_last"}}) == 1} {}

  std::int32_t device_count() const override { return kDevices; }

  std::unique_ptr<Device> open(std::int32_t) override {
    return std::make_unique<HostDevice>(clock_);
  }

  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device& device) override {
    check_precision(spec.precision);
    // Measures free memory before the first rank allocates.
    if (options_.memory_budget == 0) {
      options_.memory_budget =
          static_cast<std::size_t>(kShareOfMemory * static_cast<double>(available_memory()));
    }
    auto executable = std::make_unique<cpu::CpuExecutable>(
        graph, spec, device, options_, cpu::OperationRecorder{log_, compiled_++});
    facts_["activation_mib"] += static_cast<double>(executable->activation_bytes()) / (1 << 20);
    facts_["parameter_mib"] += static_cast<double>(executable->parameter_bytes()) / (1 << 20);
    return executable;
  }

  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, cpu::parallel_for);
  }

  std::map<std::string, double> facts() const override { return facts_; }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes{"the cpu device computes with " + cpu::engine_in_use()};
    if (log_->dropped() > 0) {
      notes.push_back(
          fmt::format("{} operations were not recorded; lower --trace-steps", log_->dropped()));
    }
    return notes;
  }
  std::string start_activity(ActivityDetail detail) override {
    if (detail == ActivityDetail::operations) log_->open();
    return {};
  }
  std::vector<ActivityRecord> finish_activity() override {
    log_->close();
    std::vector<ActivityRecord> records;
    for (const cpu::OperationSpan& span : log_->entries().subspan(taken_)) {
      records.push_back(
          {.name = *span.name, .device = span.device, .begin = span.begin, .end = span.end});
    }
    taken_ += records.size();
    return records;
  }

 private:
  /// Threads stand in for devices; if there are more threads than cores, they take turns.
  static constexpr std::int32_t kDevices = 256;

  /// 200 steps of ResNet-50 on two devices.
  static constexpr std::size_t kMostSpans = std::size_t{1} << 18;

  Clock& clock_;
  cpu::CpuOptions options_;
  const std::shared_ptr<cpu::OperationLog> log_ = std::make_shared<cpu::OperationLog>(kMostSpans);
  std::size_t taken_ = 0;      // spans
  std::int32_t compiled_ = 0;  // executables
  std::map<std::string, double> facts_;
};

}  // namespace

extern constinit const BackendEntry cpu_backend{
    .name = "cpu",
    .summary = "trains on the CPU with oneDNN, in fp32 or bf16",
    .options = kOptions,
    .computes_on_host = true,
    .make = [](const Options& options, Clock& clock) -> std::unique_ptr<Backend> {
      cpu::limit_instruction_sets(options.text("isa"));
      return std::make_unique<CpuBackend>(options, clock);
    },
};

}  // namespace penstock

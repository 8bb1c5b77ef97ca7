// SPDX-License-Identifier: Apache-2.0
// The verb ceilings: the rates that copies and matrix products reach on this machine.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "bench/gpu/check_report.h"
#include "bench/gpu/gemm.h"
#include "bench/gpu/workbench.h"

namespace penstock::gpu {
namespace {

constexpr int kWarmUps = 2, kRuns = 9;
constexpr std::size_t kMegabyte = 1'000'000;

double median_seconds(Workbench& bench, const std::function<void()>& work) {
  for (int i = 0; i < kWarmUps; ++i) bench.seconds_of(work);
  std::array<double, kRuns> times{};
  for (double& time : times) time = bench.seconds_of(work);
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return times[kRuns / 2];
}

/// Random data, because copies of zeros may be cheaper.
void fill(const Block& block, std::uint64_t seed) {
  Random random(seed);
  Bytes bytes(std::min<std::size_t>(block.size(), std::size_t{16} << 20));
  random.fill(bytes);
  block.upload(bytes);
}

struct Copies {
  Workbench& bench;
  Workbench& other;  // same driver; copies in the other direction

  /// Copies from pinned memory to the device, back, and both at once.
  void measure_host(std::size_t bytes, CheckReport& report) const {
    const Block host(bench, bytes, MemoryKind::pinned), back(bench, bytes, MemoryKind::pinned);
    const Block to(bench, bytes), from(bench, bytes);
    fill(host, 1);
    fill(from, 2);
    const auto up = [&] { bench.driver().copy(bench.stream(), to.data(), host.data(), bytes); };
    const auto down = [&] { bench.driver().copy(bench.stream(), back.data(), from.data(), bytes); };
    const auto add = [&](std::string_view name, double moved, const std::function<void()>& work) {
      const std::string full = fmt::format("{}_{}MB", name, bytes / kMegabyte);
      if (!report.wants(full)) return;
      const double seconds = median_seconds(bench, work);
      report.add(full, Verdict::note, {{"gb_per_s", moved / seconds * 1e-9}});
    };
    const auto size = static_cast<double>(bytes);
    add("copy_h2d", size, up);
    add("copy_d2h", size, down);
    Driver& driver = bench.driver();
    const GpuEvent begun(driver), ended(driver);
    add("copy_both_ways", 2 * size, [&] {
      driver.record(bench.stream(), begun.handle());
      driver.wait(other.stream(), begun.handle());
      driver.copy(other.stream(), back.data(), from.data(), bytes);
      up();
      driver.record(other.stream(), ended.handle());
      driver.wait(bench.stream(), ended.handle());
    });
  }

  /// Counts bytes read and bytes written.
  void measure_device(std::size_t bytes, CheckReport& report) const {
    const std::string name = fmt::format("copy_d2d_{}MB", bytes / kMegabyte);
    if (!report.wants(name)) return;
    const Block from(bench, bytes), to(bench, bytes);
    fill(from, 3);
    const double seconds = median_seconds(
        bench, [&] { bench.driver().copy(bench.stream(), to.data(), from.data(), bytes); });
    report.add(name, Verdict::note,
               {{"gb_per_s", 2 * static_cast<double>(bytes) / seconds * 1e-9}});
  }
};

void measure_gemm(CheckReport& report) {
  const std::string name = "gemm_8192";
  if (!report.wants(name)) return;
  const auto file = std::filesystem::read_symlink("/proc/self/exe").parent_path() / kGemmLibrary;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, kGemmFunction);
  if (symbol == nullptr) {
    const char* const reason = dlerror();
    report.add(name, Verdict::skip, {}, reason == nullptr ? "no such function" : reason);
    return;
  }
  auto* const gemm = reinterpret_cast<GemmFunction*>(symbol);
  for (const bool bf16 : {false, true}) {
    double tflops = 0;
    std::array<char, 512> error{};
    const bool failed = gemm(bf16 ? 1 : 0, 8192, 1, &tflops, error.data(), error.size()) != 0;
    report.add(fmt::format("{}_{}", name, bf16 ? "bf16" : "f16"),
               failed ? Verdict::fail : Verdict::note, {{"tflop_per_s", tflops}}, error.data());
  }
}

}  // namespace

void check_ceilings(const CheckSettings& settings, CheckReport& report) {
  if (settings.driver == "host") {
    report.add("ceilings", Verdict::skip, {}, "rates of a GPU that is emulated on the host");
    return;
  }
  const std::unique_ptr<Driver> driver = open_driver(settings);
  Workbench bench(*driver), other(*driver);
  const Copies copies{bench, other};
  for (const std::size_t megabytes : {1, 4, 16, 64, 256}) {
    copies.measure_host(megabytes * kMegabyte, report);
  }
  for (const std::size_t megabytes : {64, 1024, 4096}) {
    copies.measure_device(megabytes * kMegabyte, report);
  }
  measure_gemm(report);
}

}  // namespace penstock::gpu

// SPDX-License-Identifier: Apache-2.0
// Compares the queue feeder with libjpeg-turbo's plain full decode of the same files, interleaved
// in one process. The difference is the cost, or the saving, of reading, cropping, resizing and
// flipping.
//
//   penstock_decode_peer [directory=data/train] [rounds=9] [images=1000] [plain]
//
// Each round decodes the folder's images, in as many passes as give `images` images. The plain
// decode turns each file in memory into RGB on one thread. The feeder reads files, which the first
// pass leaves in the page cache. It runs on one thread, on one thread without timed stages, on one
// thread with libjpeg as the only engine, and on two threads. Prints the median over rounds with
// the lowest and the highest, and the median ratio with its 95 % interval. Small differences need
// many short rounds, such as 600 of 100 images. `plain` runs the full decode alone.
#include <cstdio>
// jpeglib.h needs size_t and FILE from the header above.
#include <fmt/format.h>
#include <jpeglib.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/record/machine.h"
#include "bench/record/statistics.h"
#include "bench/statistics/series.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 30;  // limit of files held in memory
constexpr std::uint64_t kSeed = 1;

/// Decodes every file completely to RGB, as a viewer would. An error ends the program (libjpeg's
/// default).
class PlainDecoder {
 public:
  PlainDecoder() {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
  }
  PlainDecoder(const PlainDecoder&) = delete;
  ~PlainDecoder() { jpeg_destroy_decompress(&jpeg_); }

  void decode(const std::vector<std::byte>& bytes) {
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    jpeg_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    const std::size_t stride = std::size_t{3} * jpeg_.output_width;
    pixels_.resize(stride * jpeg_.output_height);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW rows[8];
      JDIMENSION count = 0;
      for (; count < 8 && jpeg_.output_scanline + count < jpeg_.output_height; ++count) {
        rows[count] = pixels_.data() + stride * (jpeg_.output_scanline + count);
      }
      jpeg_read_scanlines(&jpeg_, rows, count);
    }
    jpeg_finish_decompress(&jpeg_);
  }

 private:
  jpeg_error_mgr errors_{};
  jpeg_decompress_struct jpeg_{};
  std::vector<unsigned char> pixels_;
};

std::vector<Sample> load(const DataPlan& plan) {
  const SourceEntry& entry = find_entry(source_table(), "image-folder");
  DataPlan once = plan;
  once.epochs = 1;
  const std::unique_ptr<Source> source =
      entry.make(once, Options(entry.name, entry.options, ComponentText{}));
  std::vector<Sample> samples;
  std::uint64_t bytes = 0;
  for (Sample sample; source->next(sample); samples.push_back(sample)) {
    source->load(sample);
    bytes += sample.bytes.size();
    if (bytes > kMaxBytes) {
      throw ConfigError("the images in '{}' do not fit into 4 GiB; choose a smaller folder",
                        plan.directory);
    }
  }
  return samples;
}

/// Runs the queue feeder to the end of its data, on this thread and `threads` - 1 others.
std::int64_t run_queue(const DataPlan& plan, std::int32_t threads, bool instrument = true,
                       const std::string& text = "queue") {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const readers[] = {&device};
  Probe probe(instrument);
  const FeederEntry& entry = find_entry(feeder_table(), "queue");
  const Options options(entry.name, entry.options, parse_component(text));
  const FeederContext context{.spec = {},
                              .device = device,
                              .clock = clock,
                              .options = options,
                              .data = plan,
                              .probe = probe,
                              .threads = threads,
                              .slots = 4};
  const std::unique_ptr<Feeder> feeder = entry.make(context);
  BatchRing ring(context.spec, 4, device, MemoryKind::pinned, readers, Order::relaxed, clock);
  std::int64_t images = 0;
  std::jthread reader([&] {
    while (const ReadLease lease = ring.next(0, {})) images += lease.batch().valid;
  });
  try {
    feeder->run(ring, {});
  } catch (...) {
    ring.close();
    throw;
  }
  ring.close();
  reader.join();
  return images;
}

struct Figure {
  std::string name;
  std::function<std::int64_t()> work;  // returns the number of decoded images
  std::vector<double> img_per_s{}, cpu_us{};
};

void measure(Figure& figure) {
  const auto begin = std::chrono::steady_clock::now();
  const double cpu = process_cpu_seconds();
  const auto images = static_cast<double>(figure.work());
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  figure.img_per_s.push_back(images / time.count());
  figure.cpu_us.push_back(1e6 * (process_cpu_seconds() - cpu) / images);
}

void print_ratio(const Figure& of, const Figure& to) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of.img_per_s.size(); ++i) {
    ratios.push_back(of.img_per_s[i] / to.img_per_s[i]);
  }
  constexpr std::size_t kBlock = 1;  // rounds are independent
  const statistics::Estimate ratio = statistics::bootstrap_series(ratios, median, kBlock, kSeed);
  fmt::print("{} / {}: {:.4f} ({:.4f} to {:.4f})\n", of.name, to.name, ratio.value, ratio.low,
             ratio.high);
}

void run(const std::string& directory, std::int64_t rounds, std::int64_t images, bool plain_only) {
  if (rounds < 1 || images < 1) throw ConfigError("rounds and images must be at least 1");
  DataPlan plan{.directory = directory, .seed = kSeed};
  const std::vector<Sample> samples = load(plan);
  const auto size = static_cast<std::int64_t>(samples.size());
  plan.epochs = (images + size - 1) / size;
  PlainDecoder plain;
  std::vector<Figure> figures = {{"plain full decode", [&] {
                                    for (std::int64_t pass = 0; pass < plan.epochs; ++pass) {
                                      for (const Sample& sample : samples) {
                                        plain.decode(sample.bytes);
                                      }
                                    }
                                    return plan.epochs * size;
                                  }}};
  if (!plain_only) {
    figures.push_back({"queue, 1 thread", [&] { return run_queue(plan, 1); }});
    figures.push_back({"queue, 1, untimed", [&] { return run_queue(plan, 1, false); }});
    figures.push_back(
        {"queue, 1, libjpeg", [&] { return run_queue(plan, 1, true, "queue:engine=libjpeg"); }});
    figures.push_back({"queue, 2 threads", [&] { return run_queue(plan, 2); }});
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    // Each round begins with another figure, so that none always follows the same one.
    for (std::size_t i = 0; i < figures.size(); ++i) {
      measure(figures[(static_cast<std::size_t>(round) + i) % figures.size()]);
    }
    std::cerr << "round " << round + 1 << " of " << rounds << '\n';
  }
  std::uint64_t bytes = 0;
  for (const Sample& sample : samples) bytes += sample.bytes.size();
  fmt::print("{} files of {:.1f} kB on average, {} rounds of {} images\n", size,
             1e-3 * static_cast<double>(bytes) / static_cast<double>(size), rounds,
             plan.epochs * size);
  fmt::print("{:<20}{:>10}{:>10}{:>10}{:>14}\n", "", "img/s", "low", "high", "CPU us/img");
  for (const Figure& figure : figures) {
    const Spread rate = spread(figure.img_per_s);
    fmt::print("{:<20}{:>10.1f}{:>10.1f}{:>10.1f}{:>14.1f}\n", figure.name, rate.median, rate.low,
               rate.high, median(figure.cpu_us));
  }
  if (plain_only) return;
  const Figure &plain_decode = figures[0], &one = figures[1], &untimed = figures[2],
               &by_libjpeg = figures[3], &two = figures[4];
  print_ratio(one, plain_decode);
  print_ratio(one, untimed);
  print_ratio(one, by_libjpeg);
  print_ratio(two, one);
}

}  // namespace
}  // namespace penstock

int main(int count, char** arguments) {
  try {
    const std::vector<std::string> words(arguments + 1, arguments + count);
    if (words.size() > 3 && words[3] != "plain") {
      throw penstock::ConfigError("the fourth word is '{}'; expected plain", words[3]);
    }
    penstock::run(words.empty() ? "data/train" : words[0],
                  words.size() > 1 ? penstock::parse_integer(words[1], "rounds") : 9,
                  words.size() > 2 ? penstock::parse_integer(words[2], "images") : 1000,
                  words.size() > 3);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "penstock_decode_peer: " << error.what() << '\n';
    return 2;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "feeders/python/loader_messages.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "dataflow/error.h"

namespace penstock::python {
namespace {

using nlohmann::json;

constexpr std::size_t kMostNotes = 8, kMostSettingName = 64;
constexpr std::int32_t kMostImages = 1 << 24, kMostSide = 16384;
constexpr std::size_t kMostOutline = 1000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 34;
constexpr std::int32_t kMostWorkers = 65536;
constexpr std::uint32_t kFirstOfEpoch = 1;
constexpr std::pair<std::string_view, DType> kPixels[] = {{"uint8", DType::u8},
                                                          {"float16", DType::f16},
                                                          {"bfloat16", DType::bf16},
                                                          {"float32", DType::f32}};

/// A batch as the child sends it (BATCH in feed_loader.py).
struct BatchPacket {
  std::uint32_t slot, images, flags, reserved;
  std::int64_t other_bytes, get_ns, convert_ns, room_ns, get_cpu_ns;
  std::int64_t load_ns, load_cpu_ns, load_core_ns, load_read_bytes, collate_ns, queue_ns, pin_ns;
};
static_assert(sizeof(BatchPacket) == 112);

/// The string of that name; empty: none.
std::string word(const json& value, const char* name) {
  const auto found = value.find(name);
  return found != value.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag(const json& value, const char* name) {
  const auto found = value.find(name);
  return found != value.end() && found->is_boolean() && found->get<bool>();
}

json parse(std::string_view packet) {
  json value = json::parse(packet, nullptr, false);
  if (!value.is_object()) throw DataError("the loader's process sent what is no message of it");
  const std::string error = word(value, "error"), trace = word(value, "traceback");
  if (!trace.empty()) throw DataError(error + ":\n" + trace);
  if (!error.empty()) throw ConfigError(error);
  return value;
}

/// At least 0 and at most 13 days, so that sums do not overflow.
Nanoseconds duration(std::int64_t ns) {
  return Nanoseconds(std::clamp<std::int64_t>(ns, 0, std::int64_t{1} << 50));
}

std::int64_t integer(const json& value, const char* name, std::int64_t least, std::int64_t most) {
  const auto found = value.find(name);
  if (found == value.end() || !found->is_number_integer() || found->get<std::int64_t>() < least ||
      found->get<std::int64_t>() > most) {
    throw ConfigError("the loader's {} is {}; expected {} to {}", name,
                      found == value.end() ? "missing" : found->dump(), least, most);
  }
  return found->get<std::int64_t>();
}

/// The text without control characters.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

CodeTimes times_in(const json& packet, const char* part) {
  constexpr std::size_t kMostNames = 256, kMostLength = 512;
  CodeTimes times;
  const auto sent_times = packet.find(part);
  if (sent_times == packet.end() || !sent_times->is_object()) {
    throw DataError("the loader's process sent no profile");
  }
  for (const auto& [sent, ns] : sent_times->items()) {
    std::string name = sent;
    if (!ns.is_number_integer() || name.size() > kMostLength || times.size() == kMostNames)
      continue;
    times[printable(std::move(name))] = duration(ns.get<std::int64_t>());
  }
  return times;
}

}  // namespace

std::int32_t parse_start(std::string_view packet) {
  return static_cast<std::int32_t>(integer(parse(packet), "pid", 1, INT32_MAX));
}

LoaderBatches parse_batches(std::string_view packet) {
  const json hello = parse(packet);
  LoaderBatches batches;
  const auto read = [&](const char* name, std::int64_t most) {
    return static_cast<std::int32_t>(integer(hello, name, 1, most));
  };
  batches.images = read("images", kMostImages);
  if (hello.contains("bytes")) {
    batches.opaque_bytes = integer(hello, "bytes", 1, kMostBytes);
    batches.outline = printable(word(hello, "outline").substr(0, kMostOutline));
  } else {
    batches.image = {read("height", kMostSide), read("width", kMostSide), read("channels", 4)};
    const std::string pixels = word(hello, "pixels");
    const auto known =
        std::ranges::find_if(kPixels, [&](const auto& pair) { return pair.first == pixels; });
    if (known == std::end(kPixels)) throw ConfigError("the loader's pixels are " + pixels);
    batches.pixel = known->second;
    batches.planar = flag(hello, "planar");
    batches.has_labels = flag(hello, "labels");
  }
  batches.python = word(hello, "python");
  const auto workers = static_cast<std::int32_t>(integer(hello, "workers", -1, kMostWorkers));
  if (workers >= 0) batches.workers = workers;
  batches.steps_per_epoch = integer(hello, "steps", 0, std::int64_t{1} << 40);
  batches.times_queue = flag(hello, "queue");
  batches.pins = flag(hello, "pin");
  if (const auto settings = hello.find("settings");
      settings != hello.end() && settings->is_object()) {
    for (const auto& [name, value] : settings->items()) {
      if (value.is_number_integer() && value >= 0 && value <= kMostWorkers &&
          name.size() <= kMostSettingName && batches.settings.size() < kMostNotes) {
        batches.settings[name] = value;
      }
    }
  }
  if (const auto notes = hello.find("notes"); notes != hello.end() && notes->is_array()) {
    for (const json& note : *notes) {
      if (note.is_string() && batches.notes.size() < kMostNotes) batches.notes.push_back(note);
    }
  }
  return batches;
}

std::size_t parse_memory(std::string_view packet, std::size_t slot_bytes) {
  const auto stride =
      static_cast<std::size_t>(integer(parse(packet), "stride", 4096, 2 * kMostBytes));
  if (stride < slot_bytes || stride % 4096 != 0) {
    throw DataError("the loader's process shared no memory for its batches");
  }
  return stride;
}

std::optional<LoadProfile> parse_profile(std::string_view packet) {
  if (!packet.starts_with("{\"profile\"")) return std::nullopt;
  const json sent = parse(packet);
  return LoadProfile{.code = times_in(sent, "profile"),
                     .states = times_in(sent, "states"),
                     .slowest_samples = times_in(sent, "slowest"),
                     .median_sample = duration(integer(sent, "median", 0, INT64_MAX)),
                     .mean_sample = duration(integer(sent, "mean", 0, INT64_MAX))};
}

std::optional<LoaderTraits> parse_traits(std::string_view packet) {
  constexpr std::size_t kMostTraits = 32, kMostTraitName = 256;
  if (!packet.starts_with("{\"traits\"")) return std::nullopt;
  const json sent = parse(packet);
  LoaderTraits traits;
  const auto values = sent.find("traits");
  if (values == sent.end() || !values->is_object()) {
    throw DataError("the loader's process sent no numbers of its batches");
  }
  for (const auto& [name, value] : values->items()) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number >= 0 && name.size() <= kMostTraitName && traits.size() < kMostTraits) {
      traits[printable(name)] = number;
    }
  }
  return traits;
}

LoaderBatch parse_batch(std::string_view packet, const LoaderBatches& batches,
                        std::optional<std::uint32_t> asked) {
  BatchPacket sent{};
  const bool fits = packet.size() == sizeof sent;
  if (fits) std::memcpy(&sent, packet.data(), sizeof sent);
  if (!fits || sent.reserved != 0) {   // text has no zeros
    static_cast<void>(parse(packet));  // throws what the loader says
    throw DataError("the loader's process sent what is no batch");
  }
  LoaderBatch batch{
      .slot = sent.slot,
      .images = static_cast<std::int32_t>(std::min<std::uint32_t>(sent.images, kMostImages)),
      .begins_epoch = (sent.flags & kFirstOfEpoch) != 0};
  batch.other_bytes = std::clamp<std::int64_t>(sent.other_bytes, 0, std::int64_t{1} << 40);
  batch.getting = duration(sent.get_ns);
  batch.converting = duration(sent.convert_ns);
  batch.waiting = duration(sent.room_ns);
  batch.getting_cpu = duration(sent.get_cpu_ns);
  batch.loading = duration(sent.load_ns);
  batch.loading_cpu = duration(sent.load_cpu_ns);
  batch.loading_core = duration(sent.load_core_ns);
  batch.loading_bytes = std::clamp<std::int64_t>(sent.load_read_bytes, 0, std::int64_t{1} << 40);
  batch.collating = duration(sent.collate_ns);
  batch.queued = duration(sent.queue_ns);
  batch.pinning = duration(sent.pin_ns);
  const bool too_many = batches.opaque_bytes == 0 && batch.images > batches.images;
  if (batch.slot != asked || batch.images < 1 || too_many) {
    throw DataError(
        "the loader's process sent a batch of {} images in slot {}, which it must not use",
        sent.images, sent.slot);
  }
  return batch;
}

}  // namespace penstock::python

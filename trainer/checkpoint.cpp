// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "elements are written in native byte order, which must be little-endian");

constexpr std::int64_t kVersion = 1;
constexpr std::string_view kPrefix = "model-", kSuffix = ".safetensors";
/// Ten times the size of the largest model with three floats per weight.
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{64} << 30;

std::string crc_of(std::span<const std::span<const std::byte>> parts) {
  uLong crc = crc32_z(0, nullptr, 0);
  for (const std::span<const std::byte> part : parts) {
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  }
  return fmt::format("{:08x}", crc);
}

std::string metadata_of(const SafeTensors& tensors, const std::string& key) {
  const auto found = tensors.metadata.find(key);
  return found == tensors.metadata.end() ? std::string() : found->second;
}

template <typename Number>
Number number_of(const SafeTensors& tensors, const std::string& key) {
  const std::string text = metadata_of(tensors, key);
  const std::optional<Number> number = parse_number<Number>(text);
  if (!number || *number < Number{}) {
    throw DataError("its metadata '{}' are '{}'; expected a whole number of at least 0", key, text);
  }
  return *number;
}

std::optional<LossScale> parse_loss_scale(const SafeTensors& tensors) {
  const std::string scale = metadata_of(tensors, "loss_scale");
  const std::string good_steps = metadata_of(tensors, "loss_scale_good_steps");
  if (scale.empty() && good_steps.empty()) return std::nullopt;
  const auto found = parse_number<float>(scale), counted = parse_number<float>(good_steps);
  if (!found || !counted || !(*found > 0 && std::isfinite(*found)) ||
      !(*counted >= 0 && *counted <= kMostCountedSteps)) {
    throw DataError(
        "its loss scale is '{}', after '{}' steps; expected a number above 0, and a count", scale,
        good_steps);
  }
  return LossScale{.scale = *found, .good_steps = *counted};
}

CheckpointInfo parse_info(const SafeTensors& tensors) {
  if (metadata_of(tensors, "format") != "penstock") {
    throw ConfigError("it is a safetensors file, but not a checkpoint of penstock");
  }
  const auto version = number_of<std::int64_t>(tensors, "version");
  if (version > kVersion) {
    throw ConfigError(
        "it is of version {}, but this program supports {}; use the program that wrote it, or a "
        "newer one",
        version, kVersion);
  }
  const std::span<const std::byte> data[] = {tensors.data};
  if (const std::string crc = crc_of(data); crc != metadata_of(tensors, "crc32")) {
    throw DataError("its data have the checksum {} instead of {}", crc,
                    metadata_of(tensors, "crc32"));
  }
  return {.model = metadata_of(tensors, "model"),
          .optimizer = metadata_of(tensors, "optimizer"),
          .image = {.height = number_of<std::int32_t>(tensors, "height"),
                    .width = number_of<std::int32_t>(tensors, "width"),
                    .channels = number_of<std::int32_t>(tensors, "channels")},
          .classes = number_of<std::int32_t>(tensors, "classes"),
          .step = number_of<std::int64_t>(tensors, "step"),
          .seed = number_of<std::uint64_t>(tensors, "seed"),
          .loss_scale = parse_loss_scale(tensors)};
}

/// The shortest text that parses to the same bits.
std::string exact_text(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::map<std::string, std::string> metadata(const CheckpointInfo& info) {
  std::map<std::string, std::string> data{{"format", "penstock"},
                                          {"version", std::to_string(kVersion)},
                                          {"model", info.model},
                                          {"optimizer", info.optimizer},
                                          {"height", std::to_string(info.image.height)},
                                          {"width", std::to_string(info.image.width)},
                                          {"channels", std::to_string(info.image.channels)},
                                          {"classes", std::to_string(info.classes)},
                                          {"step", std::to_string(info.step)},
                                          {"seed", std::to_string(info.seed)}};
  if (info.loss_scale) {
    data["loss_scale"] = exact_text(info.loss_scale->scale);
    data["loss_scale_good_steps"] = exact_text(info.loss_scale->good_steps);
  }
  return data;
}

std::string state_name(std::size_t slot, const ParameterSpec& spec) {
  return fmt::format("optimizer.{}.{}", slot, spec.name);
}

/// The tensors of a checkpoint before it is written, and their elements.
struct Captured {
  std::vector<SafeTensor> tensors;
  std::vector<std::vector<float>> values;

  void add(std::string name, std::vector<std::int64_t> shape, std::vector<float> plain) {
    values.push_back(std::move(plain));
    tensors.push_back({std::move(name), std::move(shape), std::as_bytes(std::span(values.back()))});
  }
};

std::string carried_name(const KeptArenas& kept, const ParameterSpec& spec) {
  return fmt::format("{}.{}", kept.carries, spec.name);
}

/// The parameter's part of `arena`, which is laid out as the set's weights.
Tensor part_of(const Tensor& arena, const ParameterSet& set, const Parameter& parameter) {
  PENSTOCK_ASSERT(arena.count == set.weights.count);
  return {static_cast<float*>(arena.data) + offset_in(set.weights, parameter.weight),
          parameter.weight.count};
}

/// Prepares only optimizers that have a state: the others round the weights later, after a restore.
OptimizerState prepared_state(Optimizer& optimizer, const ParameterSet& set) {
  if (optimizer.state().slots > 0) optimizer.prepare(set);
  return optimizer.state();
}

Captured capture(Executable& executable, Optimizer& optimizer, UpdateStrategy& update) {
  const ParameterSet& set = executable.parameters();
  const KeptArenas kept = update.kept(set);
  Captured captured;
  const auto add = [&](std::string name, const ParameterSpec& spec, const Tensor& tensor) {
    std::vector<float> plain(static_cast<std::size_t>(spec.count()));
    executable.read(spec, tensor, plain);
    captured.add(std::move(name), spec.shape, std::move(plain));
  };
  for (const Parameter& parameter : set.parameters) {
    add(parameter.spec.name, parameter.spec, part_of(kept.weights, set, parameter));
    if (kept.carried.count == 0) continue;
    add(carried_name(kept, parameter.spec), parameter.spec, part_of(kept.carried, set, parameter));
  }
  for (const Parameter& buffer : set.buffers) {
    add(buffer.spec.name, buffer.spec, buffer.weight);
  }
  const OptimizerState state = prepared_state(optimizer, set);
  for (std::size_t slot = 0; slot < state.slots; ++slot) {
    for (const Parameter& parameter : set.parameters) {
      add(state_name(slot, parameter.spec), parameter.spec,
          part_of(state.arenas[slot], set, parameter));
    }
  }
  return captured;
}

std::vector<std::byte> read_file(const fs::path& path) {
  try {
    return InputFile(path).bytes(kMaxFileBytes);
  } catch (const DataError& error) {
    throw DataError(std::string("it cannot be read: ") + error.what());
  }
}

}  // namespace

Checkpoint::Checkpoint(std::vector<std::byte> bytes)
    : bytes_(std::move(bytes)), tensors_(parse_safetensors(bytes_)), info_(parse_info(tensors_)) {}

bool Checkpoint::has(const std::string& name) const {
  return std::ranges::any_of(tensors_.tensors,
                             [&](const SafeTensor& tensor) { return tensor.name == name; });
}

std::vector<float> Checkpoint::values(const std::string& name,
                                      const std::vector<std::int64_t>& shape) const {
  const auto found = std::find_if(tensors_.tensors.begin(), tensors_.tensors.end(),
                                  [&](const SafeTensor& tensor) { return tensor.name == name; });
  if (found == tensors_.tensors.end()) {
    throw ConfigError("it has no tensor '{}', which the model needs", name);
  }
  if (found->shape != shape) {
    throw ConfigError("its tensor '{}' has another shape than the model's", name);
  }
  std::vector<float> plain(found->data.size() / sizeof(float));
  if (!plain.empty()) std::memcpy(plain.data(), found->data.data(), found->data.size());
  return plain;
}

Checkpoint::Writes Checkpoint::writes_of(const ParameterSet& set, const Tensor& weights) const {
  Writes writes;
  for (const Parameter& parameter : set.parameters) {
    writes.push_back({&parameter.spec, part_of(weights, set, parameter),
                      values(parameter.spec.name, parameter.spec.shape)});
  }
  for (const Parameter& buffer : set.buffers) {
    writes.push_back({&buffer.spec, buffer.weight, values(buffer.spec.name, buffer.spec.shape)});
  }
  return writes;
}

void Checkpoint::restore(Executable& executable) const {
  const ParameterSet& set = executable.parameters();
  for (const Write& write : writes_of(set, set.weights)) {
    executable.write(*write.spec, write.to, write.plain);
  }
}

bool Checkpoint::restore(Executable& executable, Optimizer& optimizer,
                         UpdateStrategy& update) const {
  const ParameterSet& set = executable.parameters();
  const KeptArenas kept = update.kept(set);
  const bool carries = kept.carried.count > 0;
  const bool carried = carries && std::ranges::all_of(set.parameters, [&](const auto& parameter) {
                         return has(carried_name(kept, parameter.spec));
                       });
  Writes writes = writes_of(set, carried ? kept.weights : set.weights);
  const OptimizerState state = prepared_state(optimizer, set);
  for (const Parameter& parameter : set.parameters) {
    const ParameterSpec& spec = parameter.spec;
    for (std::size_t slot = 0; slot < state.slots; ++slot) {
      writes.push_back({&spec, part_of(state.arenas[slot], set, parameter),
                        values(state_name(slot, spec), spec.shape)});
    }
    if (!carried) continue;
    writes.push_back({&spec, part_of(kept.carried, set, parameter),
                      values(carried_name(kept, spec), spec.shape)});
  }
  for (const Write& write : writes) executable.write(*write.spec, write.to, write.plain);
  if (carried) update.resume();
  return carried || !carries;
}

fs::path checkpoint_path(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{}{}", kPrefix, step, kSuffix);
}

std::vector<std::int64_t> list_checkpoints(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().native();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    if (name.size() <= kPrefix.size() + kSuffix.size()) continue;
    const std::string_view number = std::string_view(name).substr(
        kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    const auto step = parse_number<std::int64_t>(number);
    if (step && *step >= 0 && checkpoint_path({}, *step) == name) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Checkpoint read_checkpoint(const fs::path& path) {
  const std::string advice = "; nothing was changed; move it away, or state another --train-dir";
  try {
    return Checkpoint(read_file(path));
  } catch (const DataError& error) {
    throw DataError("the checkpoint '{}' is damaged: {}{}", path.native(), error.what(), advice);
  } catch (const ConfigError& error) {
    throw ConfigError("'{}' is refused: {}{}", path.native(), error.what(), advice);
  }
}

fs::path write_checkpoint(const fs::path& folder, const CheckpointInfo& info,
                          Executable& executable, Optimizer& optimizer, UpdateStrategy& update) {
  const Captured captured = capture(executable, optimizer, update);
  std::vector<std::span<const std::byte>> parts;
  for (const SafeTensor& tensor : captured.tensors) parts.push_back(tensor.data);
  std::map<std::string, std::string> about = metadata(info);
  about["crc32"] = crc_of(parts);
  const std::string header = safetensors_header(about, captured.tensors);
  const fs::path path = checkpoint_path(folder, info.step);
  OutputFile file(path,
                  "expected a folder with room that can be written; state another --train-dir");
  file.write(std::as_bytes(std::span(header)));
  for (const std::span<const std::byte> part : parts) file.write(part);
  file.commit();
  return path;
}

void remove_old_checkpoints(const fs::path& folder, std::size_t keep) {
  const std::vector<std::int64_t> steps = list_checkpoints(folder);
  if (keep == 0 || steps.size() <= keep) return;
  for (std::size_t i = 0; i < steps.size() - keep; ++i) {
    std::error_code ignored;
    fs::remove(checkpoint_path(folder, steps[i]), ignored);
  }
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/executable_fixture.h"

#include <span>
#include <utility>

#include "dataflow/error.h"
#include "tests/support/gpu/gpu_on_host.h"
#include "tests/support/plain_backend.h"
#include "trainer/initialise.h"

namespace penstock {

namespace {

/// Empty if a graph can be compiled and has weights afterwards, else the reason.
std::string why_without_weights(const BackendEntry& entry) {
  Graph graph({1, 1, 1});
  graph.add("logits", Linear{1}, {Graph::kInput});
  try {
    const CompiledGraph compiled(entry, graph, spec_for(graph, 1));
    if (!compiled.executable().parameters().parameters.empty()) return {};
    return std::string(entry.name) + " computes nothing";
  } catch (const Unavailable& error) {
    return error.what();
  }
}

}  // namespace

std::vector<BackendSubject> backends_with_weights() {
  std::vector<BackendSubject> subjects{{"plain", &plain_backend},
                                       {"gpu_on_host", &gpu_on_host_backend}};
  for (const BackendEntry* entry : backend_table().entries) {
    if (why_without_weights(*entry).empty()) subjects.push_back({std::string(entry->name), entry});
  }
  return subjects;
}

std::vector<BackendSubject> backends_that_fuse() {
  return {{"gpu_on_host_fused", &gpu_on_host_fused_backend},
          {"gpu_on_host_hopper", &gpu_on_host_hopper_backend}};
}

std::vector<BackendSubject> backends_in_other_layouts() {
  static BackendEntry channels_last;
  for (const BackendEntry* entry : backend_table().entries) {
    if (entry->name != "cpu") continue;
    channels_last = *entry;
    channels_last.make = [](const Options&, Clock& clock) {
      const BackendEntry& cpu = find_entry(backend_table(), "cpu");
      return cpu.make(Options(cpu.name, cpu.options, {"cpu", {{"layout", "channels_last"}}}),
                      clock);
    };
    return {{"cpu_channels_last", &channels_last}};
  }
  return {};
}

std::vector<BackendSubject> backends_without_weights() {
  std::vector<BackendSubject> subjects;
  for (const BackendEntry* entry : backend_table().entries) {
    const std::string reason = why_without_weights(*entry);
    if (!reason.empty()) subjects.push_back({std::string(entry->name), nullptr, reason});
  }
  for (const AbsentEntry& absent : backend_table().absent) {
    const std::string name(absent.name);
    subjects.push_back({name, nullptr, name + " is absent: " + std::string(absent.reason)});
  }
  return subjects;
}

ExecutableSpec spec_for(const Graph& graph, std::int32_t images, Precision precision) {
  return {.batch = {.images = images,
                    .image = graph.input_shape(),
                    .classes = graph.nodes().back().shape.channels},
          .precision = precision};
}

CompiledGraph::CompiledGraph(const BackendEntry& entry, const Graph& graph,
                             const ExecutableSpec& spec)
    : graph_(graph), spec_(spec) {
  backend_ = entry.make(Options(entry.name, entry.options, {}), clock_);
  compile(0);
}

CompiledGraph::CompiledGraph(std::shared_ptr<Backend> backend, std::int32_t ordinal,
                             const Graph& graph, const ExecutableSpec& spec)
    : graph_(graph), spec_(spec), backend_(std::move(backend)) {
  compile(ordinal);
}

void CompiledGraph::compile(std::int32_t ordinal) {
  device_ = backend_->open(ordinal);
  stream_ = device_->make_stream();
  executable_ = backend_->compile(graph_, spec_, *device_);
  const std::vector<Parameter>& parameters = executable_->parameters().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) index_of_[parameters[i].spec.name] = i;
  initialise(*executable_, graph_, 1);
}

void CompiledGraph::set_weights(const PlainWeights& weights) {
  const ParameterSet& set = executable_->parameters();
  const std::vector<ParameterSpec> specs = graph_.parameters();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::vector<float> plain(weights.parameters[i].begin(), weights.parameters[i].end());
    executable_->write(specs[i], set.parameters[index_of_.at(specs[i].name)].weight, plain);
  }
  for (std::size_t i = 0; i < set.buffers.size(); ++i) {
    const std::vector<float> plain(weights.buffers[i].begin(), weights.buffers[i].end());
    executable_->write(set.buffers[i].spec, set.buffers[i].weight, plain);
  }
}

StepResult CompiledGraph::run(Phase phase, const PlainBatch& batch, std::int32_t slot,
                              const GradientReady& ready) {
  Slot& memory = slots_[slot];
  if (memory.pixels.bytes().empty()) {
    memory = {device_->allocate(spec_.batch.pixel_bytes(), MemoryKind::device),
              device_->allocate(spec_.batch.label_bytes(), MemoryKind::device)};
  }
  stream_->copy(memory.pixels.bytes(), std::as_bytes(std::span(batch.pixels)));
  stream_->copy(memory.labels.bytes(), std::as_bytes(std::span(batch.labels)));
  const Batch view{.pixels = memory.pixels.bytes(),
                   .labels = {reinterpret_cast<std::int32_t*>(memory.labels.bytes().data()),
                              batch.labels.size()},
                   .valid = batch.valid,
                   .slot = slot};
  if (result_.bytes().empty()) {
    result_ = device_->allocate(sizeof(StepResult), MemoryKind::pinned);
  }
  auto* const result = ::new (result_.bytes().data()) StepResult;
  executable_->run(phase, view, *stream_, ready, *result);
  wait();
  return *result;
}

PlainTensors CompiledGraph::read(bool gradient) const {
  PlainTensors tensors;
  for (const ParameterSpec& spec : graph_.parameters()) {
    const std::size_t index = index_of_.at(spec.name);
    const Parameter& parameter = executable_->parameters().parameters[index];
    std::vector<float> plain(static_cast<std::size_t>(spec.count()));
    executable_->read(spec, gradient ? parameter.gradient : parameter.weight, plain);
    tensors.emplace_back(plain.begin(), plain.end());
  }
  return tensors;
}

PlainTensors CompiledGraph::buffers() const {
  PlainTensors tensors;
  for (const Parameter& buffer : executable_->parameters().buffers) {
    std::vector<float> plain(buffer.weight.count);
    executable_->read(buffer.spec, buffer.weight, plain);
    tensors.emplace_back(plain.begin(), plain.end());
  }
  return tensors;
}

std::vector<float> CompiledGraph::copy_of(const Tensor& tensor) const {
  std::vector<float> values(tensor.count);
  stream_->copy(std::as_writable_bytes(std::span(values)),
                {static_cast<const std::byte*>(tensor.data), tensor.count * sizeof(float)});
  wait();
  return values;
}

void CompiledGraph::wait() const {
  const std::unique_ptr<Event> done = device_->make_event();
  stream_->record(*done);
  done->wait_until(Time::max());
}

}  // namespace penstock

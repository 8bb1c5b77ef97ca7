// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/part_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "dataflow/error.h"

namespace penstock::cluster {

/// One part. Sums alternate between two accumulators: the answer of one update may still be on its
/// way to a worker while the next update is added up. No worker begins the update after that.
struct PartStore::Held {
  Part part;
  std::vector<float> weights;
  std::array<std::vector<float>, 2> sums;
  std::unique_ptr<Optimizer> optimizer;  // null: this server applies nothing
  ParameterSet set;                      // the weights and the first accumulator
  bool has_weights = false;
  std::uint64_t version = 0;  // updates made
  // State of the current update, by worker.
  std::vector<net::Frame> early;
  std::vector<bool> pushed;
  std::int32_t added = 0;           // workers added so far, from 0 on
  ServerHeader terms{};             // terms of worker 0
  std::vector<std::int32_t> pulls;  // waiting for the initial weights
};

namespace {

/// More updates than any run makes.
constexpr std::uint64_t kMostUpdates = std::uint64_t{1} << 53;

/// The part's segments as parameters in separate arenas.
ParameterSet as_parameters(const Part& part, std::span<float> weights, std::span<float> gradients) {
  ParameterSet set;
  set.weights = {weights.data(), weights.size()};
  set.gradients = {gradients.data(), gradients.size()};
  std::size_t first = 0;
  for (const Segment& segment : part.segments) {
    if (segment.elements == 0) continue;
    set.parameters.push_back({{.name = "segment",
                               .role = segment.decays ? Role::weight : Role::scale,
                               .shape = {segment.elements}},
                              {weights.data() + first, segment.elements},
                              {gradients.data() + first, segment.elements}});
    first += segment.elements;
  }
  return set;
}

[[noreturn]] void refuse(const ServerHeader& header, std::string_view field,
                         const std::string& found, const std::string& expected) {
  throw DataError("{} of part {} from worker {}: its {} is {}; expected {}", to_string(header.kind),
                  header.key, header.task, field, found, expected);
}

}  // namespace

PartStore::PartStore(const ModelLayout& layout, std::int32_t workers, Clock& clock, Send send)
    : rule_(layout.rule),
      workers_(workers),
      send_(std::move(send)),
      device_(clock),
      stream_(device_.make_stream()) {
  const ComponentText text = parse_component(layout.optimizer);
  const OptimizerEntry& entry = find_entry(optimizer_table(), text.name);
  const Options options(entry.name, entry.options, text);
  for (const Part& part : layout.parts) {
    auto held = std::make_unique<Held>();
    held->part = part;
    held->weights.resize(part.count);
    held->early.resize(static_cast<std::size_t>(workers));
    held->pushed.resize(static_cast<std::size_t>(workers));
    if (!part.fixed) {
      held->sums[0].resize(part.count);
      if (rule_ == ServerRule::sum) {
        held->sums[1].resize(part.count);
      } else {
        held->set = as_parameters(part, held->weights, held->sums[0]);
        held->optimizer = make_host_optimizer({entry, options}, serial_for);
        held->optimizer->prepare(held->set);
      }
    }
    parts_[part.key] = std::move(held);
  }
}

PartStore::~PartStore() = default;

PartStore::Held& PartStore::find(const ServerHeader& header) {
  const auto found = parts_.find(header.key);
  if (found == parts_.end()) {
    refuse(header, "key", std::to_string(header.key), "a part of this server");
  }
  return *found->second;
}

std::span<float> PartStore::values_of(Held& held, const ServerHeader& header) {
  if (header.step == 0) return held.weights;
  const OptimizerState state =
      held.optimizer != nullptr ? held.optimizer->state() : OptimizerState{};
  if (header.step > state.slots) {
    refuse(header, "step", std::to_string(header.step), fmt::format("at most {}", state.slots));
  }
  const Tensor& arena = state.arenas[header.step - 1];
  return {static_cast<float*>(arena.data), arena.count};
}

void PartStore::first(const ServerHeader& header, std::span<const std::byte> data) {
  Held& held = find(header);
  if (held.has_weights) refuse(header, "kind", "first weights again", "each part once");
  const std::span<float> values = values_of(held, header);
  if (data.size() != values.size_bytes()) {
    refuse(header, "length", std::to_string(data.size()), std::to_string(values.size_bytes()));
  }
  if (header.version > kMostUpdates) {
    refuse(header, "version", std::to_string(header.version),
           fmt::format("at most {}", kMostUpdates));
  }
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  if (header.step > 0) return;
  held.version = header.version;
  held.has_weights = true;
  for (const std::int32_t worker : std::exchange(held.pulls, {})) {
    answer(held, worker, held.weights, false);
  }
}

void PartStore::pull(std::int32_t worker, const ServerHeader& header) {
  Held& held = find(header);
  if (header.length != 0) refuse(header, "length", std::to_string(header.length), "0");
  const std::span<const float> values = values_of(held, header);
  if (held.has_weights) return answer(held, worker, values, false);
  if (header.step > 0) refuse(header, "step", std::to_string(header.step), "0 before the weights");
  if (std::find(held.pulls.begin(), held.pulls.end(), worker) != held.pulls.end()) {
    refuse(header, "kind", "a pull again", "one at a time");
  }
  held.pulls.push_back(worker);
}

void PartStore::push(std::int32_t worker, const ServerHeader& header, net::Frame data) {
  Held& held = find(header);
  if (held.part.fixed) refuse(header, "key", std::to_string(header.key), "a part that is updated");
  if (data.bytes.size() != held.part.count * sizeof(float)) {
    refuse(header, "length", std::to_string(data.bytes.size()),
           std::to_string(held.part.count * sizeof(float)));
  }
  if (!held.has_weights) refuse(header, "kind", "push", "no push before the first weights");
  if (rule_ == ServerRule::on_arrival) {
    if (header.version > held.version) {
      refuse(header, "version", std::to_string(header.version),
             fmt::format("at most {}", held.version));
    }
    const std::uint64_t staleness = held.version - header.version;
    add(held, data.bytes, true);
    apply(held, header);
    return answer(held, worker, held.weights, false, staleness);
  }
  const auto index = static_cast<std::size_t>(worker);
  if (held.pushed[index]) refuse(header, "kind", "a push again", "one of each update");
  // With one_by_one, an update of all workers raises the version by the number of workers.
  const std::uint64_t expected = rule_ == ServerRule::one_by_one
                                     ? held.version / static_cast<std::uint64_t>(workers_)
                                     : held.version;
  if (header.step != expected) {
    refuse(header, "step", std::to_string(header.step), std::to_string(expected));
  }
  if (rule_ == ServerRule::one_by_one) {
    push_alone(held, worker, header, data);
  } else {
    push_together(held, worker, header, std::move(data));
  }
}

void PartStore::push_alone(Held& held, std::int32_t worker, const ServerHeader& header,
                           const net::Frame& data) {
  add(held, data.bytes, true);
  apply(held, header);
  held.pushed[static_cast<std::size_t>(worker)] = true;
  if (++held.added < workers_) return;
  held.added = 0;
  held.pushed.assign(held.pushed.size(), false);
  // The next update's first push changes the weights, so the answers are copies.
  for (std::int32_t other = 0; other < workers_; ++other) {
    answer(held, other, held.weights, false);
  }
}

void PartStore::push_together(Held& held, std::int32_t worker, const ServerHeader& header,
                              net::Frame data) {
  const auto index = static_cast<std::size_t>(worker);
  if (worker == 0) held.terms = header;
  held.early[index] = std::move(data);
  held.pushed[index] = true;
  while (held.added < workers_ && held.pushed[static_cast<std::size_t>(held.added)]) {
    net::Frame& next = held.early[static_cast<std::size_t>(held.added)];
    add(held, next.bytes, held.added == 0);
    next = {};
    ++held.added;
  }
  if (held.added < workers_) return;
  held.added = 0;
  held.pushed.assign(held.pushed.size(), false);
  if (rule_ == ServerRule::sum) {
    const std::vector<float>& sum = held.sums[held.version % 2];
    ++held.version;
    for (std::int32_t other = 0; other < workers_; ++other) answer(held, other, sum, true);
    return;
  }
  apply(held, held.terms);
  for (std::int32_t other = 0; other < workers_; ++other) answer(held, other, held.weights, true);
}

/// The data may be unaligned.
void PartStore::add(Held& held, std::span<const std::byte> data, bool first) {
  std::vector<float>& sum = held.sums[rule_ == ServerRule::sum ? held.version % 2 : 0];
  if (data.empty()) return;
  if (first) {
    std::memcpy(sum.data(), data.data(), data.size());
    return;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float value;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    sum[i] += value;
  }
}

void PartStore::apply(Held& held, const ServerHeader& terms) {
  held.optimizer->set({.learning_rate = terms.learning_rate,
                       .weight_decay = terms.weight_decay,
                       .gradient_clip = terms.gradient_clip,
                       .step = static_cast<std::int64_t>(held.version)},
                      *stream_);
  StepResult result;
  held.optimizer->apply(held.set, terms.gradient_scale, *stream_, result);
  held.terms.value = result.l2_loss;
  ++held.version;
}

void PartStore::answer(Held& held, std::int32_t worker, std::span<const float> data, bool stays,
                       std::uint64_t staleness) {
  const std::span<const std::byte> bytes = std::as_bytes(data);
  send_(worker,
        {.kind = MessageKind::answer,
         .key = held.part.key,
         .task = static_cast<std::uint32_t>(worker),
         .step = staleness,
         .length = bytes.size(),
         .value = held.terms.value,
         .version = held.version},
        bytes, stays);
}

std::vector<std::int32_t> PartStore::awaited() const {
  std::vector<std::int32_t> missing;
  if (rule_ == ServerRule::on_arrival) return missing;
  for (std::int32_t worker = 0; worker < workers_; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    for (const auto& [key, held] : parts_) {
      const bool any =
          std::find(held->pushed.begin(), held->pushed.end(), true) != held->pushed.end();
      if (!any || held->pushed[index]) continue;
      missing.push_back(worker);
      break;
    }
  }
  return missing;
}

}  // namespace penstock::cluster

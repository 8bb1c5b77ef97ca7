// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/producer_accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

/// Limit for numbers of batches and images, so that sums of all producers do not overflow.
constexpr std::uint64_t kMostCounted = std::uint64_t{1} << 48;

}  // namespace

ProducerAccounts::Shape ProducerAccounts::shape_of(const FramedHeader& header) {
  return {header.encoding, header.encoding == FramedEncoding::pixels ? header.images : 0,
          header.height, header.width, header.channels};
}

std::string ProducerAccounts::text_of(const Shape& shape) {
  const std::string encoding(to_string(shape.encoding));
  if (shape.encoding != FramedEncoding::pixels) return encoding;
  return fmt::format("{} [{},{},{},{}]", encoding, shape.images, shape.height, shape.width,
                     shape.channels);
}

std::string ProducerAccounts::describe(std::uint64_t number) const {
  const auto found = producers_.find(number);
  const bool named = found != producers_.end() && found->second.hello;
  return remote::describe(named ? *found->second.hello : FramedHello{}, number);
}

ProducerAccounts::Producer& ProducerAccounts::find(const FramedHeader& header) {
  ++messages_;
  auto found = producers_.find(header.producer);
  if (found == producers_.end()) {
    if (!make_room()) {
      throw DataError("{} is one producer too many: {} are known that are still active",
                      describe(header.producer), limits_.producers);
    }
    ++totals_.producers_seen;
    found = producers_.try_emplace(header.producer).first;
  }
  found->second.heard = messages_;
  return found->second;
}

/// Drops a producer if there are too many. First choice is one that has ended, best without missing
/// batches; then one that has left or been silent for long. Among equals, the one that has been
/// silent longest. False: none can be dropped.
bool ProducerAccounts::make_room() {
  if (producers_.size() < limits_.producers) return true;
  const auto rank = [this](const Producer& producer) {
    if (producer.has_ended) return producer.gaps.empty() ? 3 : 2;
    return producer.has_left || messages_ - producer.heard >= limits_.silence ? 1 : 0;
  };
  const auto chosen =
      std::max_element(producers_.begin(), producers_.end(), [&](const auto& a, const auto& b) {
        return std::pair(rank(a.second), b.second.heard) <
               std::pair(rank(b.second), a.second.heard);
      });
  if (chosen == producers_.end() || rank(chosen->second) == 0) return false;
  producers_.erase(chosen);
  return true;
}

void ProducerAccounts::check_shape(Producer& producer, const FramedHeader& header) const {
  const Shape shape = shape_of(header);
  if (!producer.shape) producer.shape = shape;
  if (*producer.shape == shape) return;
  throw DataError("{} sends {} in message {}, after {}; expected one shape as long as it runs",
                  describe(header.producer), text_of(shape), header.sequence,
                  text_of(*producer.shape));
}

void ProducerAccounts::hello(const FramedHeader& header, FramedHello hello) {
  const std::lock_guard lock(mutex_);
  Producer& producer = find(header);
  producer.hello = std::move(hello);
  producer.has_left = false;
  check_shape(producer, header);
}

void ProducerAccounts::received(const FramedHeader& header) {
  const std::lock_guard lock(mutex_);
  Producer& producer = find(header);
  check_shape(producer, header);
  const std::string batch = fmt::format("batch {} of ", header.sequence);
  switch (place(producer, header)) {
    case Fault::none:
      ++totals_.batches_received;
      totals_.images_received += header.images;
      return;
    case Fault::repeated:
      ++totals_.batches_duplicate;
      throw DataError("{}{} came a second time, or long after later batches", batch,
                      describe(header.producer));
    case Fault::contradictory:
      throw DataError(
          "{}{} with {} images before it and {} in it contradicts what its other messages said{}",
          batch, describe(header.producer), header.images_before, header.images,
          producer.has_ended ? ", its end among them" : "");
  }
}

void ProducerAccounts::rejected(const FramedHeader& header) {
  const std::lock_guard lock(mutex_);
  if (!producers_.contains(header.producer) && producers_.size() >= limits_.producers) return;
  if (place(find(header), header) != Fault::none) return;
  ++totals_.batches_rejected;
  totals_.images_rejected += header.images;
}

void ProducerAccounts::ended(const FramedHeader& header) {
  const std::lock_guard lock(mutex_);
  Producer& producer = find(header);
  const bool fits =
      producer.has_ended
          ? header.sequence == producer.next && header.images_before == producer.images_next
          : advance(producer, header.sequence, header.images_before) == Fault::none;
  if (!fits) {
    throw DataError(
        "the end of {} after {} batches and {} images contradicts what its other messages said",
        describe(header.producer), header.sequence, header.images_before);
  }
  if (!std::exchange(producer.has_ended, true)) ++totals_.producers_ended;
}

void ProducerAccounts::left(std::uint64_t producer) {
  const std::lock_guard lock(mutex_);
  const auto found = producers_.find(producer);
  if (found != producers_.end()) found->second.has_left = true;
}

/// Records one more batch.
ProducerAccounts::Fault ProducerAccounts::place(Producer& producer, const FramedHeader& header) {
  if (header.sequence < producer.next) return fill(producer, header);
  if (producer.has_ended || header.images == 0) return Fault::contradictory;
  const Fault fault = advance(producer, header.sequence, header.images_before);
  if (fault != Fault::none) return fault;
  ++producer.next;
  producer.images_next += header.images;
  totals_.images_sent += header.images;
  return Fault::none;
}

/// Records the numbers between the known ones and `next` as missing.
ProducerAccounts::Fault ProducerAccounts::advance(Producer& producer, std::uint64_t next,
                                                  std::uint64_t images_before) {
  if (next >= kMostCounted || images_before >= kMostCounted || next < producer.next ||
      images_before < producer.images_next) {
    return Fault::contradictory;
  }
  const std::uint64_t batches = next - producer.next, images = images_before - producer.images_next;
  if (batches == 0 && images == 0) return Fault::none;
  // Each batch has at least one image.
  if (batches == 0 || images < batches) return Fault::contradictory;
  if (producer.gaps.size() >= limits_.gaps) producer.gaps.erase(producer.gaps.begin());
  producer.gaps.push_back({producer.next, next, producer.images_next, images_before});
  producer.next = next;
  producer.images_next = images_before;
  totals_.batches_missing += batches;
  totals_.images_missing += images;
  producer.images_missing += images;
  totals_.images_sent += images;
  return Fault::none;
}

/// Records a batch whose number was skipped.
ProducerAccounts::Fault ProducerAccounts::fill(Producer& producer, const FramedHeader& header) {
  const std::uint64_t number = header.sequence, before = header.images_before;
  auto gap = std::upper_bound(producer.gaps.begin(), producer.gaps.end(), number,
                              [](std::uint64_t value, const Gap& of) { return value < of.end; });
  if (gap == producer.gaps.end() || number < gap->first) return Fault::repeated;
  const std::uint64_t ahead = number - gap->first, behind = gap->end - number - 1;
  if (before < gap->images_first || before > gap->images_end || header.images == 0 ||
      header.images > gap->images_end - before) {
    return Fault::contradictory;
  }
  const std::uint64_t after = before + header.images;
  const std::uint64_t images_ahead = before - gap->images_first;
  const std::uint64_t images_behind = gap->images_end - after;
  if (images_ahead < ahead || images_behind < behind || (ahead == 0 && images_ahead != 0) ||
      (behind == 0 && images_behind != 0)) {
    return Fault::contradictory;
  }
  const Gap rest{number + 1, gap->end, after, gap->images_end};
  gap->end = number;
  gap->images_end = before;
  if (ahead == 0) gap = producer.gaps.erase(gap);
  if (behind != 0) producer.gaps.insert(ahead == 0 ? gap : gap + 1, rest);
  // The split gave one gap too many: drop the oldest.
  if (producer.gaps.size() > limits_.gaps) producer.gaps.erase(producer.gaps.begin());
  --totals_.batches_missing;
  totals_.images_missing -= header.images;
  producer.images_missing -= header.images;
  return Fault::none;
}

ProducerAccounts::Flow ProducerAccounts::flow(std::uint64_t producers) const {
  const std::lock_guard lock(mutex_);
  if (totals_.producers_ended < producers) return Flow::coming;
  for (const auto& [number, producer] : producers_) {
    if (producer.has_ended && !producer.gaps.empty()) return Flow::stragglers;
  }
  return Flow::complete;
}

std::string ProducerAccounts::name_of(std::uint64_t producer) const {
  const std::lock_guard lock(mutex_);
  return describe(producer);
}

std::optional<FramedHello> ProducerAccounts::hello_of(std::uint64_t producer) const {
  const std::lock_guard lock(mutex_);
  const auto found = producers_.find(producer);
  return found == producers_.end() ? std::nullopt : found->second.hello;
}

bool ProducerAccounts::is_of_boot(std::uint64_t producer, std::string_view boot,
                                  bool fallback) const {
  const std::lock_guard lock(mutex_);
  const auto found = producers_.find(producer);
  const bool is_told =
      found != producers_.end() && found->second.hello && !found->second.hello->boot.empty();
  return is_told ? found->second.hello->boot == boot : fallback;
}

AccountTotals ProducerAccounts::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::vector<ProducerAccounts::Absence> ProducerAccounts::absences(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, const Producer*>> found;
  for (const auto& [number, producer] : producers_) {
    if (producer.images_missing > 0) found.emplace_back(number, &producer);
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, found.size()));
  std::partial_sort(found.begin(), found.begin() + count, found.end(),
                    [](const auto& a, const auto& b) {
                      return a.second->images_missing > b.second->images_missing;
                    });
  std::vector<Absence> result;
  for (const auto& [number, producer] : std::span(found).first(std::min(most, found.size()))) {
    result.push_back({describe(number), producer->images_next, producer->images_missing});
  }
  return result;
}

}  // namespace penstock::remote

// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/model_store.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::cluster {

ThreadsModelStore::ThreadsModelStore(std::span<Device* const> devices, Clock& clock,
                                     std::stop_token stop)
    : devices_(devices.begin(), devices.end()),
      clock_(clock),
      stop_(std::move(stop)),
      ranks_(devices.size()) {
  for (std::size_t owner = 0; owner < ranks_.size(); ++owner) {
    for (Snapshot& snapshot : ranks_[owner].snapshots) {
      snapshot.written = devices_[owner]->make_event();
      for (Device* const device : devices_) snapshot.read.push_back(device->make_event());
    }
  }
}

void ThreadsModelStore::publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
                                Stream& stream) {
  PENSTOCK_ASSERT(weights.dtype == DType::f32 && version >= 0);
  const auto index = static_cast<std::size_t>(rank);
  Rank& mine = ranks_[index];
  Snapshot& snapshot = take_for_writing(mine);
  const std::span<std::byte> bytes = bytes_of(weights);
  if (snapshot.buffer.bytes().size() != bytes.size()) {
    snapshot.buffer = devices_[index]->allocate(bytes.size(), MemoryKind::pinned);
  }
  for (const auto& event : snapshot.read) stream.wait_for(*event);
  if (!bytes.empty()) stream.copy(snapshot.buffer.bytes(), bytes);
  stream.record(*snapshot.written);
  const std::lock_guard lock(mine.mutex);
  snapshot.version = version;
}

/// Releases a snapshot, even if copying it failed.
class ThreadsModelStore::Reading {
 public:
  Reading(Rank& rank, Snapshot& snapshot, Clock& clock)
      : rank_(rank), snapshot_(snapshot), clock_(clock) {}
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() {
    const std::lock_guard lock(rank_.mutex);
    --snapshot_.readers;
    clock_.wake(rank_.gate);
  }

 private:
  Rank& rank_;
  Snapshot& snapshot_;
  Clock& clock_;
};

std::optional<std::int64_t> ThreadsModelStore::read(std::int32_t reader, std::int32_t owner,
                                                    const Tensor& into, Stream& stream) {
  Rank& theirs = ranks_[static_cast<std::size_t>(owner)];
  Snapshot* const snapshot = take_for_reading(theirs);
  if (snapshot == nullptr) return std::nullopt;
  const Reading reading(theirs, *snapshot, clock_);
  const std::span<std::byte> bytes = bytes_of(into);
  PENSTOCK_ASSERT(bytes.size() == snapshot->buffer.bytes().size());
  stream.wait_for(*snapshot->written);
  if (!bytes.empty()) stream.copy(bytes, snapshot->buffer.bytes());
  stream.record(*snapshot->read[static_cast<std::size_t>(reader)]);
  return snapshot->version;  // does not change while it is being read
}

/// Returns the oldest snapshot without readers. The newest one stays, so that one is always
/// readable.
ThreadsModelStore::Snapshot& ThreadsModelStore::take_for_writing(Rank& rank) {
  std::unique_lock lock(rank.mutex);
  Snapshot* taken = nullptr;
  const auto find = [&] {
    std::int64_t newest = Snapshot::kNone;
    for (const Snapshot& snapshot : rank.snapshots) newest = std::max(newest, snapshot.version);
    for (Snapshot& snapshot : rank.snapshots) {
      const bool stays = snapshot.version != Snapshot::kNone && snapshot.version == newest;
      if (stays || snapshot.readers > 0) continue;
      if (taken == nullptr || snapshot.version < taken->version) taken = &snapshot;
    }
    return taken != nullptr;
  };
  if (!clock_.wait(lock, rank.gate, stop_, find)) {
    throw Error("publishing a model was abandoned: the run is stopping");
  }
  taken->version = Snapshot::kNone;
  return *taken;
}

/// Returns the newest snapshot whose copy is done. If none is done, returns the newest; the
/// reader's stream waits for it. Null: none was published.
ThreadsModelStore::Snapshot* ThreadsModelStore::take_for_reading(Rank& rank) const {
  const std::lock_guard lock(rank.mutex);
  const Time now = clock_.now();
  Snapshot *newest = nullptr, *complete = nullptr;
  for (Snapshot& snapshot : rank.snapshots) {
    if (snapshot.version == Snapshot::kNone) continue;
    if (newest == nullptr || snapshot.version > newest->version) newest = &snapshot;
    if (!snapshot.written->wait_until(now)) continue;  // polls, and returns at once
    if (complete == nullptr || snapshot.version > complete->version) complete = &snapshot;
  }
  Snapshot* const taken = complete != nullptr ? complete : newest;
  if (taken != nullptr) ++taken->readers;
  return taken;
}

}  // namespace penstock::cluster

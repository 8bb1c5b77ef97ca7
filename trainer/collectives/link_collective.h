// SPDX-License-Identifier: Apache-2.0
// A Collective over links. It chooses the all-reduce algorithm by the tensor's size. It needs
// memory that the CPU can reach, but works with any kind of link.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/collectives/compact_link.h"
#include "trainer/collectives/exchange_choice.h"
#include "trainer/collectives/link.h"
#include "trainer/collectives/thread_links.h"

namespace penstock::collectives {

/// Sums have the same bits on all ranks, but may differ from sums in rank order: each algorithm has
/// its own order, which may differ between elements of one tensor. broadcast and reduce_sum use a
/// binary tree. With a 16-bit wire, all_reduce_sum rounds what it sends and finally each rank's
/// result.
class LinkCollective final : public Collective {
 public:
  /// `device` is borrowed.
  LinkCollective(std::unique_ptr<Link> link, Device& device, ExchangeChoice choice);

  World world() const noexcept override { return link_->world(); }
  bool recordable() const noexcept override { return true; }
  void all_reduce_sum(Tensor tensor, Stream& stream) override;
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override;
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override;

 private:
  /// Waits for the stream and for all ranks. Returns an empty span if there is nothing to exchange.
  std::span<float> arrive(const Tensor& tensor, Stream& stream);
  void meet();

  const std::unique_ptr<Link> link_;
  const std::unique_ptr<Event> arrived_;
  const ExchangeChoice choice_;
  std::optional<CompactLink> compact_;  // set if the wire is not f32
  Workspace workspace_;
  std::vector<float> sums_;  // for reduce_sum, if the rank keeps its own values
};

/// The text of CollectiveGroup::how() for ranks with links `between` them.
std::string how_links_exchange(const ExchangeChoice& choice, std::string_view between);

/// Ranks that are threads of one process and are connected by links.
class LinkGroup final : public CollectiveGroup {
 public:
  /// One device per rank, borrowed. See ThreadLinks.
  LinkGroup(std::span<Device* const> devices, Clock& clock, Nanoseconds timeout,
            std::stop_token stop, ExchangeChoice choice)
      : devices_(devices.begin(), devices.end()),
        choice_(std::move(choice)),
        links_(static_cast<std::int32_t>(devices.size()), clock, timeout, std::move(stop)) {}
  std::unique_ptr<Collective> join(std::int32_t rank) override {
    return std::make_unique<LinkCollective>(links_.join(rank),
                                            *devices_[static_cast<std::size_t>(rank)], choice_);
  }
  std::string how() const override { return how_links_exchange(choice_, "between threads"); }

 private:
  const std::vector<Device*> devices_;
  const ExchangeChoice choice_;
  ThreadLinks links_;
};

}  // namespace penstock::collectives

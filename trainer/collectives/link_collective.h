// SPDX-License-Identifier: Apache-2.0
// A Collective over links. It chooses the all-reduce algorithm by the tensor's size. It needs
// memory that the CPU can reach, but works with any kind of link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "trainer/collectives/exchange_choice.h"
#include "trainer/collectives/link.h"
#include "trainer/collectives/thread_links.h"
#include "trainer/wire_format.h"

namespace penstock::collectives {

/// A link that sends floats as 16 bits: it rounds them before sending and widens them on arrival.
/// Messages contain whole floats. An algorithm that adds between messages adds in
/// f32, and each message rounds the sum again. Values that a rank keeps are not rounded, so ranks
/// agree only after each has rounded its values.
class CompactLink final : public Link {
 public:
  /// `link` is borrowed. The format is not f32.
  CompactLink(Link& link, WireFormat format) : link_(link), format_(format) {}

  World world() const noexcept override { return link_.world(); }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override;

 private:
  /// Rounds into memory of the link.
  std::span<const std::byte> narrowed(std::span<const std::byte> floats);

  Link& link_;
  const WireFormat format_;
  std::vector<std::byte> outgoing_, incoming_;  // grow on request and never shrink
};

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

/// One of several processes, which are connected by links.
class ProcessLinkGroup final : public CollectiveGroup {
 public:
  using MakeLink = std::function<std::unique_ptr<Link>()>;
  /// `device` is borrowed, and `between` is a literal; see how_links_exchange.
  ProcessLinkGroup(Device& device, ExchangeChoice choice, std::string_view between, MakeLink make)
      : device_(device), choice_(std::move(choice)), between_(between), make_(std::move(make)) {}
  std::unique_ptr<Collective> join(std::int32_t) override {
    return std::make_unique<LinkCollective>(make_(), device_, choice_);
  }
  std::string how() const override { return how_links_exchange(choice_, between_); }

 private:
  Device& device_;
  const ExchangeChoice choice_;
  const std::string_view between_;
  const MakeLink make_;
};

}  // namespace penstock::collectives

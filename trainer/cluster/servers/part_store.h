// SPDX-License-Identifier: Apache-2.0
// The weights of one parameter server, and the processing of pushed gradients. It knows no sockets:
// the caller passes messages in, and a callback sends the answers.
//
// Gradients are added in worker order, independently of their arrival, so that sums have the same
// bits in every run. Gradients that arrive early stay in their receive buffers.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "dataflow/host_device.h"
#include "dataflow/net/message_sockets.h"
#include "dataflow/options.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/model_layout.h"
#include "trainer/optimizer.h"

namespace penstock::cluster {

class PartStore {
 public:
  /// Sends an answer to a worker. `stays`: the data stay unchanged in place until the worker has
  /// them; otherwise they must be copied at once.
  using Send = std::function<void(std::int32_t worker, const ServerHeader& header,
                                  std::span<const std::byte> data, bool stays)>;

  /// Throws ConfigError if the optimizer does not exist. `clock` outlives the store.
  PartStore(const ModelLayout& layout, std::int32_t workers, Clock& clock, Send send);
  ~PartStore();

  /// The calls throw DataError, and change nothing, if key, length or step are wrong. The initial
  /// weights are accepted once; a resumed run sends the optimizer's state before them.
  void first(const ServerHeader& header, std::span<const std::byte> data);
  /// Answered once the initial weights are there; the optimizer's state only after them.
  void pull(std::int32_t worker, const ServerHeader& header);
  void push(std::int32_t worker, const ServerHeader& header, net::Frame data);

  /// Workers that others wait for: they have not pushed some part that other workers have pushed.
  std::vector<std::int32_t> awaited() const;

 private:
  struct Held;
  Held& find(const ServerHeader& header);
  /// The values that a message first or pull is about: its step is 0 for the weights, otherwise the
  /// number of the optimizer's arena, from 1.
  static std::span<float> values_of(Held& held, const ServerHeader& header);
  void add(Held& held, std::span<const std::byte> data, bool first);
  void apply(Held& held, const ServerHeader& terms);
  void answer(Held& held, std::int32_t worker, std::span<const float> data, bool stays,
              std::uint64_t staleness = 0);
  void push_together(Held& held, std::int32_t worker, const ServerHeader& header, net::Frame data);
  void push_alone(Held& held, std::int32_t worker, const ServerHeader& header,
                  const net::Frame& data);

  const ServerRule rule_;
  const std::int32_t workers_;
  const Send send_;
  HostDevice device_;
  const std::unique_ptr<Stream> stream_;
  std::map<std::uint32_t, std::unique_ptr<Held>> parts_;  // by key
};

}  // namespace penstock::cluster

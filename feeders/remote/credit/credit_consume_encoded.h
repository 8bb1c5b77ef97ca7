// SPDX-License-Identifier: Apache-2.0
// zmq-consume:encoded=true with credit: receives messages of image files. Each message is held
// until all its images are decoded. Only then may its producer send another one.
#pragma once

#include <memory>

#include "feeders/feeder.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {

/// Like make_credit_consume(), for image files. Throws ConfigError.
std::unique_ptr<Feeder> make_credit_consume_encoded(const FeederContext& context,
                                                    ZmqSocketOptions socket);

}  // namespace penstock::remote

/* SPDX-License-Identifier: Apache-2.0 */
/* Sends batches of images to `penstock run --fake-location zmq-consume`: Penstock's own message
 * format (feeders/framed_format.md) over a ZeroMQ PUSH socket. C99 and later, and whatever can call
 * C.
 *
 * A producer is used by one thread at a time, and not across fork(). Nothing waits longer than the
 * timeout that it was given. No call ends the process or throws. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_PRODUCER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_producer penstock_producer;

/* What calls return. */
enum {
  PENSTOCK_PRODUCER_OK = 0,
  PENSTOCK_PRODUCER_TIMEOUT = 1, /* no consumer took it in time; it may be tried again */
  PENSTOCK_PRODUCER_INVALID = 2, /* an argument or option is wrong, or the call comes too late */
  PENSTOCK_PRODUCER_FAILED = 3   /* the socket or memory gave out */
};

typedef struct penstock_producer_options {
  size_t size;        /* of this struct, as penstock_producer_options_init() sets it */
  int bind;           /* this side binds; default 0: it connects, and zmq-consume binds */
  int hwm;            /* batches that may wait here for each consumer; default 4 */
  int checksum;       /* 1: each batch carries a CRC32C, which the consumer compares; default 0 */
  int64_t timeout_ms; /* how long a call may wait for a consumer; default 30,000 */
  const char* name;   /* of the program, in the consumer's messages; default: its file's */
  const char* server_key; /* CURVE, 40 characters of Z85 each: the consumer's public key, */
  const char* public_key; /* and our own pair; all three, or none (default) */
  const char* secret_key;
} penstock_producer_options;

/* Sets the defaults. */
PENSTOCK_PRODUCER_API void penstock_producer_options_init(penstock_producer_options* options);

/* `endpoint`: ipc://PATH, ipc://@NAME or tcp://HOST:PORT; of a side that binds also tcp://HOST:*.
 * `options` may be null. Does not wait for a consumer. Null: it failed, and `error` (may be null)
 * says why in up to `error_size` bytes, which end with a 0. */
PENSTOCK_PRODUCER_API penstock_producer* penstock_producer_open(
    const char* endpoint, const penstock_producer_options* options, char* error, size_t error_size);

/* The endpoint in full: with the port that was chosen for a '*'. Lives as long as the producer. */
PENSTOCK_PRODUCER_API const char* penstock_producer_address(const penstock_producer* producer);

/* Why the last call failed, and what to do; "" if it did not. Valid until the next call. */
PENSTOCK_PRODUCER_API const char* penstock_producer_error(const penstock_producer* producer);

/* Work on the next batch begins now. Without it the consumer does not know how long a batch took.
 */
PENSTOCK_PRODUCER_API void penstock_producer_begin(penstock_producer* producer);

/* Sends `images` x `height` x `width` x `channels` bytes, NHWC, RGB (3 channels), and `images`
 * labels, the same numbers each time. Copies both. Waits while as many batches as `hwm` says wait
 * already. What fails has not been sent, and is no loss in the consumer's count. */
PENSTOCK_PRODUCER_API int penstock_producer_send_pixels(penstock_producer* producer,
                                                        const void* pixels, uint32_t images,
                                                        uint32_t height, uint32_t width,
                                                        uint32_t channels, const int32_t* labels);

/* The same without a copy of the pixels, which stay as they are until `release` is called with
 * `hint`: once, on a thread of ZeroMQ's, at the latest in penstock_producer_close(). It is not
 * called where the call fails. It may call nothing of this header. */
PENSTOCK_PRODUCER_API int penstock_producer_lend_pixels(penstock_producer* producer,
                                                        const void* pixels, uint32_t images,
                                                        uint32_t height, uint32_t width,
                                                        uint32_t channels, const int32_t* labels,
                                                        void (*release)(void* hint), void* hint);

/* Sends JPEG files, which the consumer decodes: `images` of them, at most 65,536, each at files[i]
 * with lengths[i] bytes, from 1 to 4,294,967,295. Copies them. Waits and fails as above. */
PENSTOCK_PRODUCER_API int penstock_producer_send_jpegs(penstock_producer* producer,
                                                       const void* const* files,
                                                       const size_t* lengths, uint32_t images,
                                                       const int32_t* labels);

/* Says that no more batches will come. Others are refused from here on. */
PENSTOCK_PRODUCER_API int penstock_producer_end(penstock_producer* producer);

/* Waits at most `timeout_ms` until consumers have what was sent, then closes the socket, which
 * takes a second at most, and frees the producer (null: nothing to do). `undelivered` (may be null)
 * becomes the number of batches that are known not to have arrived: PENSTOCK_PRODUCER_TIMEOUT if
 * there are any. PUSH sockets do not learn what a consumer that went away had not read; such
 * batches are not among them. */
PENSTOCK_PRODUCER_API int penstock_producer_close(penstock_producer* producer, int64_t timeout_ms,
                                                  int64_t* undelivered);

#ifdef __cplusplus
}
#endif

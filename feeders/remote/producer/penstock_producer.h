/* SPDX-License-Identifier: Apache-2.0 */
/* Sends batches of images to `penstock run --fake-location zmq-consume`: Penstock's own message
 * format (feeders/remote/framed_format.md) over a ZeroMQ PUSH socket. For C99 and later, and for
 * other languages that can call C.
 *
 * One thread at a time may use a producer, and not across fork(). No call waits longer than its
 * timeout. No call ends the process or throws. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_PRODUCER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_producer penstock_producer;

/* Return values of calls. */
enum {
  PENSTOCK_PRODUCER_OK = 0,
  PENSTOCK_PRODUCER_TIMEOUT = 1, /* no consumer took it in time; try again */
  PENSTOCK_PRODUCER_INVALID = 2, /* an argument or option is wrong, or the call comes too late */
  PENSTOCK_PRODUCER_FAILED = 3   /* the socket failed, or memory is short */
};

/* Types of pixels. */
enum {
  PENSTOCK_PRODUCER_U8 = 0,
  PENSTOCK_PRODUCER_F32 = 1,
  PENSTOCK_PRODUCER_F16 = 2,
  PENSTOCK_PRODUCER_BF16 = 3
};

typedef struct penstock_producer_options {
  size_t size;            /* of this struct; penstock_producer_options_init() sets it */
  int bind;               /* 1: this side binds; default 0: zmq-consume binds */
  int hwm;                /* batches that may wait here, per consumer; default 4 */
  int checksum;           /* 1: each batch carries a CRC32C for the consumer to check; default 0 */
  int64_t timeout_ms;     /* how long a call may wait for a consumer; default 30,000 */
  const char* name;       /* program name for the consumer's messages; default: the file name */
  const char* server_key; /* CURVE, 40 characters of Z85 each: the consumer's public key, */
  const char* public_key; /* and our own pair; all three, or none (default) */
  const char* secret_key;
} penstock_producer_options;

/* Sets the defaults. */
PENSTOCK_PRODUCER_API void penstock_producer_options_init(penstock_producer_options* options);

/* `endpoint`: ipc://PATH, ipc://@NAME or tcp://HOST:PORT; with `bind` also tcp://HOST:*. `options`
 * may be null. Does not wait for a consumer. Returns null on failure and writes the reason to
 * `error` (may be null), in up to `error_size` bytes, which end with a 0. */
PENSTOCK_PRODUCER_API penstock_producer* penstock_producer_open(
    const char* endpoint, const penstock_producer_options* options, char* error, size_t error_size);

/* The full endpoint, with the port that was chosen for '*'. Lives as long as the producer. */
PENSTOCK_PRODUCER_API const char* penstock_producer_address(const penstock_producer* producer);

/* Why the last call failed, and what to do; "" if it did not. Valid until the next call. */
PENSTOCK_PRODUCER_API const char* penstock_producer_error(const penstock_producer* producer);

/* Work on the next batch begins now. Without this call the consumer does not know how long a
 * batch took. The batch is complete at the first call that sends it, even if that call times out
 * and is repeated. */
PENSTOCK_PRODUCER_API void penstock_producer_begin(penstock_producer* producer);

/* Says what pixels are, before the first batch: their type, and 1 for NCHW. Without this call they
 * are bytes in NHWC. Other types need zmq-consume:pixels=f32, f16 or bf16, and NCHW needs
 * zmq-consume:planar=true. */
PENSTOCK_PRODUCER_API int penstock_producer_set_pixels(penstock_producer* producer, int type,
                                                       int planar);

/* Sends `images` x `height` x `width` x `channels` pixels, RGB (3 channels), and `images` labels.
 * These numbers must stay the same in all calls. Copies both. Waits while `hwm` batches are
 * waiting. A call that fails has sent nothing, and the consumer does not count a loss. */
PENSTOCK_PRODUCER_API int penstock_producer_send_pixels(penstock_producer* producer,
                                                        const void* pixels, uint32_t images,
                                                        uint32_t height, uint32_t width,
                                                        uint32_t channels, const int32_t* labels);

/* Like penstock_producer_send_pixels(), without a copy of the pixels. The pixels must not change
 * until `release` is called with `hint`: once, on a ZeroMQ thread, at the latest in
 * penstock_producer_close(). If this call fails, `release` is not called. `release` must not call
 * any function of this header. */
PENSTOCK_PRODUCER_API int penstock_producer_lend_pixels(penstock_producer* producer,
                                                        const void* pixels, uint32_t images,
                                                        uint32_t height, uint32_t width,
                                                        uint32_t channels, const int32_t* labels,
                                                        void (*release)(void* hint), void* hint);

/* Sends JPEG files, which the consumer decodes: `images` files, at most 65,536, each at files[i]
 * with lengths[i] bytes, from 1 to 4,294,967,295. Copies them. Waits and fails like
 * penstock_producer_send_pixels(). */
PENSTOCK_PRODUCER_API int penstock_producer_send_jpegs(penstock_producer* producer,
                                                       const void* const* files,
                                                       const size_t* lengths, uint32_t images,
                                                       const int32_t* labels);

/* Tells consumers that no more batches will come. Later batches are refused. */
PENSTOCK_PRODUCER_API int penstock_producer_end(penstock_producer* producer);

/* Waits at most `timeout_ms` until consumers have what was sent, then closes the socket, which
 * takes a second at most, and frees the producer (null: nothing to do). Sets `undelivered` (may be
 * null) to the number of batches that are known to be undelivered. Returns
 * PENSTOCK_PRODUCER_TIMEOUT if there are any. A PUSH socket does not learn what a consumer that
 * went away had not read, so such batches are not counted. */
PENSTOCK_PRODUCER_API int penstock_producer_close(penstock_producer* producer, int64_t timeout_ms,
                                                  int64_t* undelivered);

#ifdef __cplusplus
}
#endif

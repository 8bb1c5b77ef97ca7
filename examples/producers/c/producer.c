/* Build: cc -std=c99 -o producer producer.c -lzmq
 * Run:   ./producer ipc://feed 64, together with
 *        penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
 * SPDX-License-Identifier: Apache-2.0
 * Feeds random images to Penstock with libzmq alone. It writes Penstock's framed format by hand
 * (feeders/remote/framed_format.md). */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <zmq.h>

enum { BATCH = 1, END = 3, PIXELS = 1 };

static void put(unsigned char* header, int at, int bytes, uint64_t value) {
  for (int i = 0; i < bytes; ++i) header[at + i] = (unsigned char)(value >> (8 * i));
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void fill(void* to, size_t bytes) {
  FILE* const random = fopen("/dev/urandom", "rb");
  if (random == NULL || fread(to, 1, bytes, random) != bytes) exit(1);
  fclose(random);
}

static void check(int result) {
  if (result != -1) return;
  fprintf(stderr, "producer: %s; is a consumer running?\n", zmq_strerror(zmq_errno()));
  exit(1);
}

/* Waits until the consumer has read every byte that the kernel holds, for all sockets of this
 * process. Several checks in a row must find none, because libzmq may send more. Without this wait,
 * a consumer without room (libzmq 4.3, ipc) drops what it has not read when the connection ends. */
static void await_all_read(void) {
  const struct timespec pause = {0, 5000000};
  int all = 0;
  for (int looks = 0; looks < 10 && all < 6000; ++looks, ++all) { /* at most half a minute */
    for (int descriptor = 3; descriptor < 1024; ++descriptor) {
      int unread = 0;
      if (ioctl(descriptor, TIOCOUTQ, &unread) == 0 && unread > 0) looks = -1;
    }
    nanosleep(&pause, NULL);
  }
}

int main(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: producer ENDPOINT IMAGES_IN_A_BATCH [BATCHES [SIDE]]\n");
    return 2;
  }
  const uint32_t images = (uint32_t)atoi(arguments[2]);
  const long batches = count > 3 ? atol(arguments[3]) : 0; /* 0: no limit */
  const uint32_t side = count > 4 ? (uint32_t)atoi(arguments[4]) : 224;
  const size_t pixel_bytes = (size_t)images * side * side * 3, label_bytes = (size_t)images * 4;
  unsigned char* const pixels = malloc(pixel_bytes);
  int32_t* const labels = malloc(label_bytes); /* little-endian */
  unsigned char header[96];
  uint64_t number;
  if (pixels == NULL || labels == NULL) return 1;
  fill(&number, sizeof number);

  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_PUSH);
  const int hwm = 4, timeout_ms = 30000, yes = 1;
  check(zmq_setsockopt(socket, ZMQ_SNDHWM, &hwm, sizeof hwm));
  check(zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms));
  check(zmq_setsockopt(socket, ZMQ_LINGER, &timeout_ms, sizeof timeout_ms));
  check(zmq_setsockopt(socket, ZMQ_IMMEDIATE, &yes, sizeof yes));
  check(zmq_connect(socket, arguments[1]));

  for (long i = 0; batches == 0 || i <= batches; ++i) {
    const int last = batches > 0 && i == batches;
    memset(header, 0, sizeof header);
    memcpy(header, "PENSTOCK", 8);
    put(header, 8, 2, 1); /* version */
    put(header, 10, 2, last ? END : BATCH);
    put(header, 16, 8, number | 1); /* of this producer, not 0 */
    put(header, 24, 8, (uint64_t)i);
    put(header, 88, 8, (uint64_t)i * images);
    if (last) {
      check(zmq_send(socket, header, sizeof header, 0));
      break;
    }
    put(header, 12, 2, PIXELS);
    put(header, 32, 8, now_ns()); /* begun */
    fill(pixels, pixel_bytes);
    for (uint32_t image = 0; image < images; ++image) labels[image] = rand() % 1000;
    put(header, 40, 8, now_ns()); /* ready */
    put(header, 56, 4, images);
    put(header, 60, 4, side);
    put(header, 64, 4, side);
    put(header, 68, 4, 3); /* channels */
    put(header, 80, 8, pixel_bytes + label_bytes);
    put(header, 48, 8, now_ns()); /* sent */
    check(zmq_send(socket, header, sizeof header, ZMQ_SNDMORE));
    check(zmq_send(socket, pixels, pixel_bytes, ZMQ_SNDMORE));
    check(zmq_send(socket, labels, label_bytes, 0));
  }
  await_all_read();
  zmq_close(socket);
  zmq_ctx_term(context); /* waits until all is sent */
  free(pixels);
  free(labels);
  return 0;
}

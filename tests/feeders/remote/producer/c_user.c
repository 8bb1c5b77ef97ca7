/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds black images through the installed library. Usage: c_user ENDPOINT IMAGES_IN_A_BATCH */
#include <stdio.h>
#include <stdlib.h>

#include "penstock_producer.h"

int main(int count, char** arguments) {
  char error[256];
  penstock_producer_options options;
  penstock_producer_options_init(&options);
  options.checksum = 1;
  if (count != 3) return 2;
  const uint32_t images = (uint32_t)atoi(arguments[2]);
  void* const pixels = calloc(images, 224 * 224 * 3);
  int32_t* const labels = calloc(images, sizeof *labels);
  penstock_producer* const producer =
      penstock_producer_open(arguments[1], &options, error, sizeof error);
  if (producer == NULL) fprintf(stderr, "%s\n", error);
  if (producer == NULL || pixels == NULL || labels == NULL) return 1;
  while (penstock_producer_send_pixels(producer, pixels, images, 224, 224, 3, labels) ==
         PENSTOCK_PRODUCER_OK) {
  }
  fprintf(stderr, "%s\n", penstock_producer_error(producer));
  penstock_producer_close(producer, 1000, NULL);
  free(pixels);
  free(labels);
  return 1;
}

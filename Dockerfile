# Penstock on Debian 12, without a GPU. `--build-arg DEBIAN=13`: on Debian 13.
#   docker build -t penstock .
#   docker run --rm penstock run --device emulated --fake-location cpu --num-batches 50
#   docker run --rm -v "$PWD:/data" penstock sweep     # keeps data/ and out/ in this folder
# `make package-test` runs these steps without Docker.
ARG DEBIAN=12
FROM debian:${DEBIAN} AS build
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /penstock
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache make deb

FROM debian:${DEBIAN}
COPY --from=build /penstock/build/penstock_*.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/penstock_*.deb \
    && rm -rf /tmp/penstock_*.deb /var/lib/apt/lists/*
WORKDIR /data
# OpenShift starts containers as a user without a name, in group 0.
RUN chmod g+w /data
ENTRYPOINT ["penstock"]
CMD ["--help"]

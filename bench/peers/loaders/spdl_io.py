# SPDX-License-Identifier: Apache-2.0
"""SPDL: FFmpeg's decoder and filters in SPDL's pipeline of threads. Each thread makes a batch.

SPDL's wheel contains no FFmpeg. If the system has none, the one in PyAV's wheel is used: see
`find_ffmpeg`.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import random
import re
import sys
import threading

import common

OPTIONS = {"flags": "bilinear"}


def find_ffmpeg(scratch):
    """Starts this program again with PyAV's libraries under the names that SPDL expects."""
    import spdl.io
    try:
        spdl.io.demux_config()  # loads the libraries
        return
    except RuntimeError:
        found = importlib.util.find_spec("av")
        if found is None or "LOADERS_FFMPEG" in os.environ:
            raise
    links = pathlib.Path(scratch, "ffmpeg")
    links.mkdir(exist_ok=True)
    for library in (pathlib.Path(found.origin).parent.parent / "av.libs").iterdir():
        names = [library.name]
        if plain := re.fullmatch(r"(lib(?:av|sw)\w+)-\w+(\.so\.\d+)[.\d]*", library.name):
            names.append(plain[1] + plain[2])
        for name in names:
            (links / name).unlink(missing_ok=True)
            (links / name).symlink_to(library)
    path = ":".join(filter(None, [str(links), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "LOADERS_FFMPEG": "av"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def settings(options):
    return {"decode": "whole image", "antialias": "yes", "dct": "FFmpeg's", "dct_scaling": "no",
            "chroma": "FFmpeg's", "output": "HWC"}


def versions(task):
    found = {"SPDL": importlib.metadata.version("spdl_io")}
    if "LOADERS_FFMPEG" in os.environ:
        import av
        found["libavcodec of PyAV"] = ".".join(map(str, av.library_versions["libavcodec"]))
        found["PyAV"] = av.__version__
    return found


def frame_of(path, box_of, mirrored, flags):
    import spdl.io
    packets = spdl.io.demux_image(path)
    left, top, width, height = box_of(packets.width, packets.height)
    # One thread in a filter, because the pipeline has one thread for each core.
    filters = (f"crop={width}:{height}:{left}:{top}:exact=1,"
               f"scale={common.SIDE}:{common.SIDE}:flags={flags}:threads=1,"
               f"{'hflip,' if mirrored else ''}format=pix_fmts=rgb24")
    return spdl.io.decode_packets(packets, filter_desc=filters)


def batches(task):
    import spdl.io
    from spdl.pipeline import PipelineBuilder
    own = threading.local()

    def load(paths):
        if not hasattr(own, "draw"):
            own.draw = random.Random(paths[0])

        def box_of(width, height):
            return common.random_resized_crop(width, height, own.draw)

        frames = [frame_of(path, box_of, own.draw.random() < 0.5, task.options["flags"]) for path in paths]
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    pipeline = (PipelineBuilder().add_source(common.endless_shuffle(task.files)).aggregate(task.batch)
                .pipe(load, concurrency=task.threads).add_sink(2).build(num_threads=task.threads, max_failures=0))
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def rate(task):
    find_ffmpeg(task.scratch)
    return common.rate_of(batches(task), task)


def evaluate(task, box):
    find_ffmpeg(task.scratch)
    import spdl.io
    frames = [frame_of(path, lambda width, height: box, False, task.options["flags"]) for path in task.files]
    return spdl.io.to_numpy(spdl.io.convert_frames(frames))

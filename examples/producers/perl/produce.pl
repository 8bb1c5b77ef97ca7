#!/usr/bin/perl
# Run: perl produce.pl ipc://feed 64, beside
#      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
# SPDX-License-Identifier: Apache-2.0
# Feeds random images to Penstock in its framed format (feeders/remote/framed_format.md). Needs Debian's libzmq-ffi-perl.
use strict;
use warnings;
use FFI::Platypus;
use Time::HiRes qw(sleep time);
use ZMQ::FFI qw(ZMQ_PUSH ZMQ_SNDHWM ZMQ_SNDTIMEO ZMQ_LINGER ZMQ_IMMEDIATE);

my ($endpoint, $images, $batches, $side) = @ARGV;
die "usage: produce.pl ENDPOINT IMAGES_IN_A_BATCH [BATCHES [SIDE]]\n" unless $images;
$side ||= 224;
my $channels = 3;
my ($batch_kind, $end_kind, $pixels_encoding) = (1, 3, 1);
my $pixel_bytes = $images * $side * $side * $channels;

open(my $random, '<:raw', '/dev/urandom') or die "/dev/urandom: $!";
sub random_bytes { read($random, my $bytes, $_[0]) == $_[0] or die "/dev/urandom: $!"; return $bytes }
sub now_ns { return int(time() * 1e6) * 1000 }

my $context = ZMQ::FFI->new;
my $socket  = $context->socket(ZMQ_PUSH);
$socket->set(ZMQ_SNDHWM, 'int', 4);
$socket->set(ZMQ_SNDTIMEO, 'int', 30_000);
$socket->set(ZMQ_LINGER, 'int', 30_000);
$socket->set(ZMQ_IMMEDIATE, 'int', 1);
$socket->connect($endpoint);

my $producer = unpack('Q<', random_bytes(8)) | 1;    # not 0
my $sequence = 0;

# kind, encoding, begun, ready, [images, height, width, channels], bytes after the header
sub header {
    my ($kind, $encoding, $begun, $ready, $shape, $payload) = @_;
    return pack('a8 S<4 Q<2 q<3 L<4 L<2 Q<2', 'PENSTOCK', 1, $kind, $encoding, 0, $producer, $sequence,
        $begun, $ready, now_ns(), @$shape, 0, 0, $payload, $sequence * $images);
}

# Over ipc, if a connection ends while the consumer has no room, the consumer (libzmq 4.3) drops its unread messages.
# This waits until the other side has read every byte that the kernel holds, for all sockets of this process, and libzmq
# has no more to send: ten checks in a row.
my $libc = FFI::Platypus->new(lib => [undef]);
$libc->attach([ ioctl => 'ioctl_of' ] => [ 'int', 'unsigned long', 'int*' ] => 'int');
sub await_all_read {
    my $outq = 0x5411;    # TIOCOUTQ
    my $all = 0;
    for (my $looks = 0; $looks < 10 && $all < 6000; ++$looks, ++$all) {    # half a minute at most
        for my $descriptor (3 .. 1023) {
            my $unread = 0;
            $looks = -1 if ioctl_of($descriptor, $outq, \$unread) == 0 && $unread > 0;
        }
        sleep(0.005);
    }
}

while (!$batches || $sequence < $batches) {
    my $begun  = now_ns();
    my $pixels = random_bytes($pixel_bytes);
    my $labels = pack('l<*', map { int(rand(1000)) } 1 .. $images);
    my $header = header($batch_kind, $pixels_encoding, $begun, now_ns(), [$images, $side, $side, $channels],
        $pixel_bytes + length($labels));
    $socket->send_multipart([$header, $pixels, $labels]);
    ++$sequence;
}
$socket->send(header($end_kind, 0, 0, 0, [0, 0, 0, 0], 0));
await_all_read();
$socket->close;
$context->destroy;    # waits until all messages are sent

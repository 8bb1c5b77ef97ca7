# SPDX-License-Identifier: Apache-2.0
# Sourced: if "$@" begins with perl or python3, replaces it with an interpreter that has ZeroMQ, or skips the test.
case $1 in
  perl)
    if ! perl -MZMQ::FFI -e 1 2> /dev/null; then
      echo "skipped: perl has no ZMQ::FFI; install libzmq-ffi-perl"
      exit 77
    fi
    ;;
  python3)
    shift
    for python in python3 /usr/bin/python3 none; do
      if [ "$python" = none ]; then
        echo "skipped: no python3 has both zmq and numpy; install python3-zmq and python3-numpy"
        exit 77
      fi
      if "$python" -c 'import zmq, numpy' 2> /dev/null; then break; fi
    done
    set -- "$python" "$@"
    ;;
esac

# SPDX-License-Identifier: Apache-2.0
# Sourced: if "$@" begins with perl or python3, replaces it with an interpreter that has ZeroMQ (and msgpack_numpy, if a word
# is msgpack), or skips the test. Replaces C FILE with a program in $folder, if FILE is valid C99.
case $1 in
  perl)
    if ! perl -MZMQ::FFI -e 1 2> /dev/null; then
      echo "skipped: perl has no ZMQ::FFI; install libzmq-ffi-perl"
      exit 77
    fi
    ;;
  python3)
    shift
    modules="zmq, numpy"
    case " $* " in *" msgpack "*) modules="$modules, msgpack_numpy" ;; esac
    for python in python3 /usr/bin/python3 none; do
      if [ "$python" = none ]; then
        echo "skipped: no python3 has all of $modules; install python3-zmq, python3-numpy and python3-msgpack-numpy"
        exit 77
      fi
      if "$python" -c "import $modules" 2> /dev/null; then break; fi
    done
    set -- "$python" "$@"
    ;;
  C)
    cc -std=c99 -pedantic -Wall -Wextra -Werror -o "$folder/producer" "$2" -lzmq
    shift 2
    set -- "$folder/producer" "$@"
    ;;
esac

#!/bin/sh
# pkg_config.sh <pkg-config> <folder of ashlar.pc> <compiler> <source> <program>
set -eu
PKG_CONFIG_PATH=$2
export PKG_CONFIG_PATH
flags=$("$1" --cflags --libs ashlar)
set -x
"$3" $flags "$4" -o "$5"
"$5"

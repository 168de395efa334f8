// Sets: every block of ashlar/sets/.
#pragma once

#include "ashlar/sets/pooling.hpp"
#include "ashlar/sets/quantile_pooling.hpp"

// Attention: every block of ashlar/attention/.
#pragma once

#include "ashlar/attention/decay.hpp"
#include "ashlar/attention/lightning.hpp"
#include "ashlar/attention/sequence_parallel.hpp"

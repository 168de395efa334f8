// Low precision: every block of ashlar/precision/.
#pragma once

#include "ashlar/precision/adamw.hpp"
#include "ashlar/precision/adamw_state.hpp"
#include "ashlar/precision/bi_exponent.hpp"
#include "ashlar/precision/bi_exponent_file.hpp"
#include "ashlar/precision/bi_exponent_product.hpp"
#include "ashlar/precision/block_formats.hpp"
#include "ashlar/precision/collage.hpp"
#include "ashlar/precision/descent_quality.hpp"
#include "ashlar/precision/expansion.hpp"
#include "ashlar/precision/threshold_search.hpp"

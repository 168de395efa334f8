// Dynamics: every block of ashlar/dynamics/.
#pragma once

#include "ashlar/dynamics/contact_contagion.hpp"
#include "ashlar/dynamics/contagion.hpp"
#include "ashlar/dynamics/contagion_simulation.hpp"
#include "ashlar/dynamics/contagion_trace.hpp"
#include "ashlar/dynamics/contamination_study.hpp"
#include "ashlar/dynamics/count_chain.hpp"
#include "ashlar/dynamics/feature_contamination.hpp"
#include "ashlar/dynamics/online_training.hpp"
#include "ashlar/dynamics/structured_features.hpp"
#include "ashlar/dynamics/two_layer_gradient.hpp"
#include "ashlar/dynamics/two_layer_network.hpp"
#include "ashlar/dynamics/two_layer_training.hpp"

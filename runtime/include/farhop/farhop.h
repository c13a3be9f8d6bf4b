// Everything a trainer needs.
//
//   auto runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
//   auto graph = runtime.openGraph();
//   farhop::NeighborLoader loader(graph, graph.split("train"), options);
//   for (farhop::Batch& batch : loader.epoch(0)) { torch::Tensor x = batch.feature("x").pull(); ... }
#pragma once

#include "farhop/batch.h"
#include "farhop/edge_seeds.h"
#include "farhop/epoch.h"
#include "farhop/error.h"
#include "farhop/graph.h"
#include "farhop/link_loader.h"
#include "farhop/neighbor_loader.h"
#include "farhop/node_feature.h"
#include "farhop/random_walk_loader.h"
#include "farhop/runtime.h"
#include "farhop/version.h"

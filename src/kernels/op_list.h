// The list of ops. A new op is a folder with its contract and kernels, and an entry here. The kernels of a back-end,
// the planners, `--kernel`, the step times and `explain` follow from this list.
#pragma once

#include <type_traits>

#include "kernels/activation/activation.h"
#include "kernels/argmax/argmax.h"
#include "kernels/attention/attention.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/delta_rule/delta_rule.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/grouped_lora/grouped_lora.h"
#include "kernels/head_routing/head_routing.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/latent_prompt/latent_prompt.h"
#include "kernels/latent_write/latent_write.h"
#include "kernels/linear/linear.h"
#include "kernels/lora/lora.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "kernels/rope/angles.h"
#include "kernels/rope/rope.h"
#include "kernels/rope_write/rope_write.h"
#include "kernels/router/router.h"
#include "kernels/sample/sample.h"
#include "kernels/score_range/score_range.h"
#include "kernels/ssm_scan/ssm_scan.h"

namespace millrace {

template <class... Ops>
struct OpList {
  // Wrap<Op> for every op, in one tuple.
  template <template <class> class Wrap>
  using Each = std::tuple<Wrap<Ops>...>;

  // Calls visit(std::type_identity<Op>()) for every op.
  template <class Visit>
  static void for_each(Visit visit) {
    (visit(std::type_identity<Ops>()), ...);
  }
};

using AllOps = OpList<  //
    LinearOp,           //
    AttentionOp,        //
    NormOp,             //
    RopeAnglesOp,       //
    RopeOp,             //
    ActivationOp,       //
    EmbeddingOp,        //
    ElementwiseOp,      //
    KvWriteOp,          //
    RopeWriteOp,        //
    ArgmaxOp,           //
    SampleOp,           //
    ScoreRangeOp,       //
    CausalConvOp,       //
    DeltaRuleOp,        //
    SsmScanOp,          //
    RouterOp,           //
    GroupedLinearOp,    //
    HeadRoutingOp,      //
    LatentWriteOp,      //
    LatentPromptOp,     //
    LoraOp,             //
    GroupedLoraOp,      //
    PoolOp>;

}  // namespace millrace

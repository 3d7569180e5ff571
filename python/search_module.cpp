// The tree search of the engine, for millrace/search.py, which generates the children and gives them values.
#include "search_module.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "engine/tree_search.h"

namespace nb = nanobind;
using namespace nb::literals;
using millrace::TreeSearch;

void bind_search(nb::module_& m) {
  using Expansion = std::tuple<size_t, int32_t, int32_t>;
  using Child = std::tuple<std::vector<int32_t>, int32_t, double, double, bool>;
  nb::class_<TreeSearch>(m, "TreeSearch")
      .def(
          "__init__",
          [](TreeSearch* self, int64_t budget, int32_t width, int32_t segment, int32_t longest, int32_t parallel,
             int32_t beam) {
            try {
              new (self) TreeSearch({budget, width, segment, longest, parallel, beam});
            } catch (const millrace::Error& e) {
              throw nb::value_error(e.what());
            }
          },
          "budget"_a, "width"_a, "segment"_a, "longest"_a, "parallel"_a, "beam"_a)
      .def("next_round",
           [](TreeSearch& self) {
             std::vector<Expansion> round;
             for (const auto& e : self.next_round()) round.emplace_back(e.node, e.children, e.tokens);
             return round;
           })
      .def(
          "take",
          [](TreeSearch& self, size_t node, const std::vector<Child>& given) {
            std::vector<TreeSearch::Child> children;
            for (const auto& [tokens, spent, value, logprob, ended] : given)
              children.push_back({tokens, spent, value, logprob, ended});
            self.take({.node = node}, std::move(children));
          },
          "node"_a, "children"_a)
      .def(
          "tokens",
          [](const TreeSearch& self, size_t node) {
            const auto tokens = self.tokens(node);
            return std::vector<int32_t>(tokens.begin(), tokens.end());
          },
          "node"_a)
      .def("value", &TreeSearch::value, "node"_a)
      .def("logprob", &TreeSearch::logprob, "node"_a)
      .def("ended", &TreeSearch::ended, "node"_a)
      .def("answers", &TreeSearch::answers)
      .def_prop_ro("spent", &TreeSearch::spent);
}

"""Which names of this room the core namespace and `weft` have, by module. It loads none of them."""

PUBLIC_NAMES = {
    name: f"jit.{module}"
    for module, names in {
        "types": "Type AnyType AwaitType BoolType ClassType ComplexType DeviceObjType DictType FloatType FutureType "
        "IntType ListType NoneType NumberType OptionalType PyObjectType RRefType StreamObjType StringType SymIntType "
        "TensorType TupleType UnionType",
        "graph": "Graph",
        "nodes": "Block Node Use Value",
        "schema": "Argument FunctionSchema parse_schema",
        "parse": "parse_ir",
        "filecheck": "FileCheck",
        "run.code": "Code",
        "run.executor": "ExecutionPlanState GraphExecutorState",
        "tracing.executor": "GraphExecutor",
        "run.gradient": "Gradient",
        "run.interpreter": "JITException",
        "run.nested": "IODescriptor",
        "run.specs": "ArgumentSpec CompleteArgumentSpec",
        "run.tracing_state": "TracingState",
        "archive.load": "import_ir_module import_ir_module_from_buffer",
        "functions": "ScriptFunction ScriptMethod",
        "modules": "ScriptModule",
        "frontend.compiler": "CompilationUnit",
        "frontend.decl": "merge_type_from_type_comment parse_type_comment",
    }.items()
    for name in names.split()
}
JIT_NAMES = {  # what `weft.jit` has, by module of this room
    name: module
    for module, names in {
        "archive.load": "load",
        "archive.write": "save",
        "tracing.trace": "TopLevelTracedModule TracingCheckError trace trace_module",
        "forks": "Future fork wait",
        "functions": "ScriptFunction",
        "modules": "ScriptModule",
        "frontend.compiler": "CompilationUnit script",
        "frontend.language": "Final _overload _overload_method annotate export ignore interface is_scripting "
        "isinstance unused",
        "run.interpreter": "JITException",
        "run.tracing_state": "TracerWarning is_tracing",
    }.items()
    for name in names.split()
}
# What only the core namespace has, under another name: the function, by its module.
CORE_NAMES = {
    "_jit_get_all_schemas": ("jit.operators", "all_schemas"),
    "_jit_get_schemas_for_operator": ("jit.operators", "schemas_of"),
    "_jit_differentiate": ("jit.run.gradient", "differentiate"),
    "_jit_flatten": ("jit.run.nested", "flatten"),
    "_jit_unflatten": ("jit.run.nested", "unflatten"),
    "_create_graph_by_tracing": ("jit.tracing.trace", "create_graph_by_tracing"),
    "_get_tracing_state": ("jit.run.tracing_state", "get_tracing_state"),
    "_set_tracing_state": ("jit.run.tracing_state", "set_tracing_state"),
}
# What the core namespace has as `_jit_pass_` and a name: the function, by its module in `passes`.
PASSES = {
    f"_jit_pass_{name}": (f"jit.passes.{module}", function)
    for module, names in {
        "autograd_zero": {"specialize_autogradzero": "specialize_autograd_zero"},
        "batched_products": {"batch_mm": "batch_mm"},
        "common_subexpressions": {"cse": "eliminate_common_subexpressions"},
        "constants": {
            "constant_pooling": "pool_constants",
            "constant_propagation": "propagate_constants",
            "constant_propagation_immutable_types": "propagate_constants_without_memory",
        },
        "dead_code": {
            "dce": "eliminate_dead_code",
            "dce_graph": "eliminate_dead_writes",
            "dce_allow_deleting_nodes_with_side_effects": "eliminate_dead_code_with_effects",
        },
        "decompositions": {name: name for name in ("decompose_ops", "fuse_addmm", "fuse_linear")},
        "fuser_form": {"canonicalize_ops": "canonicalize_ops", "canonicalize_graph_fuser_ops": "canonicalize_ops"},
        "grouping": {name: name for name in ("create_autodiff_subgraphs", "fuse")},
        "inlining": {name: name for name in ("inline", "inline_fork_wait")},
        "mutation": {name: name for name in ("remove_inplace_ops", "remove_mutation")},
        "peephole": {"peephole": "peephole"},
        "renaming": {"canonicalize": "canonicalize"},
        "rewriting": {"custom_pattern_based_rewrite_graph": "rewrite_pattern"},
        "shapes": {
            "complete_shape_analysis": "complete_shape_analysis",
            "propagate_shapes_on_graph": "propagate_shapes",
        },
        "tuples": {name: name for name in ("lower_simple_tuples", "lower_all_tuples")},
        "types_of_values": {name: name for name in ("erase_shape_information", "erase_number_types", "remove_expands")},
        "unrolling": {"loop_unrolling": "unroll_loops", "constant_loop_unrolling": "unroll_constant_loops"},
    }.items()
    for name, function in names.items()
} | {"_jit_pass_lint": ("jit.lint", "lint")}

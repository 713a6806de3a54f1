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
        "frontend.decl": "merge_type_from_type_comment parse_type_comment",
    }.items()
    for name in names.split()
}
JIT_NAMES = {  # what `weft.jit` has, by module of this room
    name: module
    for module, names in {
        "frontend.compiler": "CompilationUnit script",
        "frontend.language": "Final annotate export ignore is_scripting is_tracing isinstance unused",
        "run.interpreter": "JITException",
    }.items()
    for name in names.split()
}

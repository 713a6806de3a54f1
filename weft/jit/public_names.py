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
        "archive.load": "import_ir_module import_ir_module_from_buffer",
        "functions": "ScriptFunction ScriptMethod",
        "modules": "ScriptModule",
        "frontend.compiler": "CompilationUnit",
    }.items()
    for name in names.split()
}
JIT_NAMES = {  # what `weft.jit` has, by module of this room
    name: module
    for module, names in {
        "archive.load": "load",
        "archive.write": "save",
        "functions": "ScriptFunction",
        "modules": "ScriptModule",
        "frontend.compiler": "CompilationUnit script",
        "frontend.language": "Final annotate export ignore is_scripting is_tracing isinstance unused",
        "run.interpreter": "JITException",
    }.items()
    for name in names.split()
}

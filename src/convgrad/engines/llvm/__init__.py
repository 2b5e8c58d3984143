"""The generated engine, which writes kernels as LLVM IR and compiles them in this process."""

"""The generated engine: problems solved by kernels that Python writes as LLVM IR and compiles in process."""

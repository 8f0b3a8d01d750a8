"""What this machine is, and what its sensors and benchmarks say.

`gpu` is the interface to every vendor's GPUs, `nvidia`, `amd` and `apple` implement it, `cpu` is the processor;
`detection` combines what was found with what the owner set by hand.
"""

"""What this machine is, and what it measures of itself.

`model` is what all kinds of GPU are asked for; `nvidia`, `amd` and `apple` ask each in its own way, `cpu` is the rest.
`machine` puts what was found together with what the owner set by hand.
"""

"""The lease market's moving parts at a gateway. The rules are in `market/`, the contracts are reached by `chain/`."""

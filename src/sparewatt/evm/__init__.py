"""An EVM chain without web3, for nodes and validators: ABI codec, transaction signer, JSON-RPC client, log reader."""

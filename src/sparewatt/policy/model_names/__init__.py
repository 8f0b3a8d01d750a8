"""One name per model: which ids of model servers mean the same weights, apart from their quantization. Pure."""

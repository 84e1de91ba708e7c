"""Reads structured logs of torch.compile, which PyTorch writes into the folder of the variable TORCH_TRACE."""

"""Logs of nvidia-smi and DCGM -> samples."""
